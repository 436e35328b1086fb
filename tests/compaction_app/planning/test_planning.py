"""The parameters of a plan with their sources, and how long a provider is waited for."""

import pytest

from compaction_app.planning.effective_parameters import effective_parameters, own_parameters
from compaction_app.planning.model_request import patience_for
from compaction_app.providers.client import Patience
from compaction_app.providers.types import Endpoint
from sessions_app.agents.pi.agent import PI
from sessions_app.sessionlog.errors import BadInput
from tests.installation import override_configuration


def test_a_runs_own_parameter_wins_and_each_value_has_its_source(tmp_path):
    (tmp_path / "p" / ".atomic").mkdir(parents=True)
    (tmp_path / "p" / ".atomic" / "settings.json").write_text('{"compaction": {"compression_ratio": 0.3}}')
    (tmp_path / ".atomic" / "agent").mkdir(parents=True)
    (tmp_path / ".atomic" / "agent" / "settings.json").write_text(
        '{"compaction": {"compression_ratio": 0.9, "preserve_recent": 7}}'
    )
    found = effective_parameters(PI.settings(str(tmp_path / "p"), tmp_path), {"query": "parser"})
    assert dict(found.values) == {"query": "parser", "compression_ratio": 0.3, "preserve_recent": 7}
    assert found.sources["query"] == "this run"
    assert found.sources["compression_ratio"].endswith("p/.atomic/settings.json")
    assert found.sources["preserve_recent"].endswith(".atomic/agent/settings.json")


@pytest.mark.parametrize(
    ("ratio", "recent"), [(0.0, None), (1.0, None), (-1.0, None), (float("nan"), None), (None, -1)]
)
def test_a_parameter_out_of_range_is_bad_input_and_not_replaced_by_a_default(ratio, recent):
    with pytest.raises(BadInput):
        own_parameters(ratio, recent, None)


@pytest.mark.parametrize("address", ["https://api.example.com/v1", "http://localhost:11434/v1"])
def test_a_whole_answer_may_take_as_long_as_is_configured_and_a_silence_ends_it_before(address):
    endpoint = Endpoint("acme", "openai", address)
    patience = patience_for(endpoint)
    assert patience.between < patience.first_byte < patience.whole
    assert patience_for(endpoint).whole == Patience().whole == 30 * 60
    with override_configuration(answer_minutes=0.5):
        assert patience_for(endpoint).whole == 30
