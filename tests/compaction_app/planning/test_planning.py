"""The parameters of a plan with their sources, and how long a provider is waited for."""

from pathlib import Path

import pytest

from compaction_app.planning.model_request import patience_for
from compaction_app.planning.plan import effective_parameters, own_parameters, source_of_query
from compaction_app.providers.client import Patience
from compaction_app.providers.types import Endpoint
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.agents.pi.agent import PI
from sessions_app.sessionlog.errors import BadInput
from tests.installation import override_configuration


@pytest.fixture
def put(tmp_path):
    """Writes settings of the project (`p`) or of the user, in an agent's directory."""

    def write(place: str, compaction: str) -> Path:
        path = tmp_path / place / "settings.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"compaction": {compaction}}}')
        return path

    return write


def test_a_runs_own_parameter_wins_and_each_value_has_its_source(tmp_path, put):
    of_project = put("p/.atomic", '{"compression_ratio": 0.3}')
    of_user = put(".atomic/agent", '{"compression_ratio": 0.9, "preserve_recent": 7}')
    found = effective_parameters(ATOMIC.settings.for_project(str(tmp_path / "p"), tmp_path), {"query": "parser"})
    assert dict(found.values) == {"query": "parser", "compression_ratio": 0.3, "preserve_recent": 7}
    sources = {"query": "this plan", "compression_ratio": str(of_project), "preserve_recent": str(of_user)}
    assert found.sources == sources
    of_pi = effective_parameters(PI.settings.for_project(str(tmp_path / "p"), tmp_path), {})
    assert (of_pi.values, set(of_pi.sources.values())) == ({}, {"default"})


@pytest.mark.parametrize(
    ("name", "recorded", "value"),
    [
        *(("compression_ratio", bad, None) for bad in ("7", "0", "true", '"0.5"', "null")),
        *(("preserve_recent", bad, None) for bad in ("true", '"2"', "null", "1" + "0" * 400)),
        *(("preserve_recent", *found) for found in (("-3", 0), ("2.7", 2), ("0", 0))),
        *(("query", *found) for found in (("7", None), ("null", None), ('"x"', "x"), ('""', ""))),
    ],
)
def test_a_value_has_the_form_in_which_it_counts_or_the_default_stays(tmp_path, put, name, recorded, value):
    of_project = put("p/.pi", f'{{"{name}": {recorded}}}')
    put(".pi/agent", '{"compression_ratio": 0.9, "preserve_recent": 7, "query": "y"}')
    found = effective_parameters(PI.settings.for_project(str(tmp_path / "p"), tmp_path), {})
    refused = {} if value is not None else {name: (str(of_project),)}
    assert (found.values.get(name), {one.name: one.refused for one in found.found if one.refused}) == (value, refused)
    assert found.sources[name] == ("default" if refused else str(of_project))
    assert found.faults == tuple(f"{of_project}: {one} cannot be used" for one in refused)


@pytest.mark.parametrize(
    ("planner", "source", "is_used"),
    [
        ("embedded", "default", False),
        ("embedded", "this plan", True),
        ("acme/model", "default", True),
        ("prune", "this plan", False),
    ],
)
def test_a_query_that_its_planner_does_not_use_is_said_to_be_unused(planner, source, is_used):
    assert ("does not use it" not in source_of_query(planner, source)) is is_used


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
