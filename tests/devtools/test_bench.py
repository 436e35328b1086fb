"""`make bench`: what it prints of the figures that it measures, and its exit code."""

import json
import subprocess
import sys

import pytest

from devtools.bench import report
from devtools.bench.figures import Figure
from sessions_app.sessionlog.errors import BadInput
from tests.paths import PROJECT


def test_a_missed_limit_is_reported_and_a_figure_without_a_value_misses_none(monkeypatch, capsys):
    for value, holds in ((1.0, True), (None, None), (3.0, False)):
        figure = Figure("a figure", value, "ms", 2.0)
        monkeypatch.setattr(report, "BENCHMARKS", {"one": lambda figure=figure: iter([figure])})
        assert report.measure([], as_json=True) is (holds is not False)
        shown = {"name": "a figure", "value": value, "unit": "ms", "bar": 2.0, "holds": holds}
        assert json.loads(capsys.readouterr().out) == {"figures": [shown]}
        report.measure(["one"])
        assert "a figure" in capsys.readouterr().out


def test_an_unknown_figure_is_refused_before_anything_is_measured(monkeypatch):
    monkeypatch.setattr(report, "BENCHMARKS", {})
    with pytest.raises(BadInput, match="no benchmark everything") as refused:
        report.measure(["everything"])
    assert refused.value.code == "unknown_benchmark"


def test_it_runs_without_a_server_and_without_the_command_redline():
    command = [sys.executable, "-m", "devtools.bench", "nothing", "--json"]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert (ended.returncode, json.loads(ended.stdout)["error"]["code"]) == (2, "unknown_benchmark")
