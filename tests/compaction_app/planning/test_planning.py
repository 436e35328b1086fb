"""What a plan reports before it is approved."""

import pytest

from compaction_app.planning.effective_parameters import effective_parameters, own_parameters
from sessions_app.agents.pi.agent import PI
from sessions_app.sessionlog.errors import BadInput


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
