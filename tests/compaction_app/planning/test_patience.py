"""How long Redline waits for a provider, as configured."""

import pytest

from compaction_app.planning.model_request import patience_for
from compaction_app.providers.client import Patience
from compaction_app.providers.types import Endpoint
from tests.installation import override_configuration

ADDRESSES = ("https://api.example.com/v1", "http://localhost:11434/v1")


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_whole_answer_may_take_as_long_as_is_configured(address):
    endpoint = Endpoint("acme", "openai", address)
    assert patience_for(endpoint).whole == Patience().whole == 30 * 60
    with override_configuration(answer_minutes=0.5):
        assert patience_for(endpoint).whole == 30


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_silence_ends_an_answer_before_its_deadline_does(address):
    patience = patience_for(Endpoint("acme", "openai", address))
    assert patience.between < patience.first_byte < patience.whole
