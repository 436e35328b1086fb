"""OpenCode's own settings: when it compacts, and whether it does so automatically."""

import json
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.opencode.settings import model_prices, model_windows, read_settings

MODEL = ("ours", "big")


@pytest.fixture(autouse=True)
def no_other_configuration(monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home" / ".config" / "opencode").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def write(directory: Path, name: str = "opencode.json", **values: Any) -> Path:
    path = directory / name
    path.write_text(f"// Comments are allowed.\n{json.dumps(values)}", encoding="utf-8")
    return path


def limited(**limits: int) -> dict[str, Any]:
    return {MODEL[0]: {"models": {MODEL[1]: {"limit": limits}}}}


@pytest.mark.parametrize(
    ("limits", "reserved", "reserve"),
    [
        ({}, None, 32_000),
        ({"context": 40_000, "output": 4_000}, None, 4_000),
        ({"context": 40_000, "output": 4_000}, 9_000, 4_000),
        ({"context": 200_000, "output": 64_000}, None, 32_000),
        ({"context": 400_000, "input": 272_000, "output": 128_000}, None, 148_000),
        ({"context": 400_000, "input": 272_000, "output": 8_000}, None, 136_000),
        ({"context": 400_000, "input": 272_000, "output": 128_000}, 1_000, 129_000),
        ({"input": 272_000}, 0, 0),
    ],
)
def test_a_reply_or_the_limit_of_input_is_left_free(home, project, limits, reserved, reserve):
    compaction = {} if reserved is None else {"reserved": reserved}
    write(home / ".config" / "opencode", provider=limited(**limits), compaction=compaction)
    assert read_settings(str(project), home, MODEL).budget.reserve_tokens == reserve
    assert read_settings(str(project), home, None).budget.reserve_tokens == 32_000


def test_the_settings_of_the_project_take_precedence(home, project):
    users = write(home / ".config" / "opencode", compaction={"auto": True}, provider=limited(output=8_000))
    own = write(project, "opencode.jsonc", compaction={"auto": False}, provider=limited(output=4_000))
    found = read_settings(str(project), home, MODEL)
    assert [file.path for file in found.files] == [own, users]
    assert found.budget.reserve_tokens == 4_000
    assert found.switched_off_in == own


def test_the_windows_of_configured_models_are_known(home):
    write(home / ".config" / "opencode", provider=limited(context=77_000))
    assert model_windows(home) == {"big": 77_000}


def test_the_prices_of_configured_models_are_known(home):
    cost = {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}
    models = {"big": {"cost": cost}, "small": {"cost": "free"}}
    write(home / ".config" / "opencode", provider={"ours": {"models": models}})
    assert model_prices(home) == {"big": (3, 0.3, 3.75)}


@pytest.mark.parametrize("values", [{"provider": 7}, {"provider": {"ours": []}}, {"compaction": "x"}, {}])
def test_what_is_not_settings_changes_nothing(home, project, values):
    write(home / ".config" / "opencode", **values)
    assert read_settings(str(project), home, MODEL).budget.reserve_tokens == 32_000
    assert model_windows(home) == {}
