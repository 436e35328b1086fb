"""The agents' own files: precedence is respected, and nothing hostile is opened."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.agents.base import BranchSummarySettings, CompactionBudget, SettingsFile
from sessions_app.agents.edge.json_file import SIZE_LIMIT
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.registry import model_prices, model_windows

ATOMICS, PIS = Path(".atomic", "settings.json"), Path(".pi", "settings.json")
USERS, MODELS = Path(".pi", "agent", "settings.json"), Path(".pi", "agent", "models.json")


def put(path: Path, content: object) -> Path:
    """Write a file, as JSON unless it is bytes, creating its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def settings_files(cwd: str, home: Path) -> list[SettingsFile]:
    return list(ATOMIC.settings.for_project(cwd, home).files)


def project_settings(cwd: Path, home: Path) -> SettingsFile:
    """The one settings file that is found."""
    (found,) = settings_files(str(cwd), home)
    return found


def test_the_projects_settings_come_before_the_users_and_atomics_before_pis_and_pi_reads_its_own_alone(cwd, home):
    places = [cwd / ATOMICS, cwd / PIS, home / ".atomic" / "agent" / "settings.json", home / USERS]
    for rank, place in reversed(list(enumerate(places))):
        put(place, {"compaction": {"rank": rank}})
    found = settings_files(str(cwd), home)
    assert [one.path for one in found] == places
    assert [one.compaction["rank"] for one in found] == [0, 1, 2, 3]
    assert not any(one.fault for one in found)
    assert [one.path for one in PI.settings.for_project(str(cwd), home, BIG).files] == [places[1], places[3]]


@pytest.mark.parametrize(
    "content",
    [*(b"", b"{", b"[]", b"7", b"null", b'"text"', b"\0\0", b'{"a":NaN}', b'{"a":1,}', b"[" * 100_000), b"\xff\xfe{}"],
    ids=lambda content: repr(content[:10]),
)
def test_a_file_that_is_not_a_json_object_is_a_fault_of_that_file_only(cwd, home, content):
    broken = put(cwd / ATOMICS, content)
    put(home / ".atomic" / "agent" / "settings.json", {"compaction": {"enabled": True}})
    first, second = settings_files(str(cwd), home)
    assert (first.path, first.compaction) == (broken, {})
    assert "JSON" in first.fault
    assert (second.compaction, second.fault) == ({"enabled": True}, "")


def test_the_limit_is_one_million_bytes_and_the_last_of_them_is_still_read(cwd, home):
    for size, expected in ((SIZE_LIMIT, ({"a": 1}, False)), (SIZE_LIMIT + 1, ({}, True))):
        put(cwd / ATOMICS, b'{"compaction":{"a":1}}'.ljust(size))
        found = project_settings(cwd, home)
        assert (found.compaction, "larger" in found.fault) == expected


def test_a_directory_and_a_symlink_loop_are_faults_and_a_dangling_symlink_is_a_missing_file(cwd, home):
    path = cwd / ATOMICS
    assert settings_files(str(cwd), home) == []
    put(cwd / ".atomic", b"a file where a directory would be")
    assert settings_files(str(cwd), home) == []
    path.parent.unlink()
    path.mkdir(parents=True)
    assert project_settings(cwd, home).fault
    path.rmdir()
    path.symlink_to(path)
    assert project_settings(cwd, home).fault
    path.unlink()
    path.symlink_to(cwd / "nowhere")
    assert settings_files(str(cwd), home) == []


def test_a_pipe_is_neither_waited_for_nor_opened(cwd, home):
    path = cwd / ATOMICS
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    # A process waiting at the other end of a pipe continues as soon as someone opens this one.
    went_on = threading.Event()

    def wait_at_the_other_end() -> None:
        os.close(os.open(path, os.O_WRONLY))
        went_on.set()

    other_end = threading.Thread(target=wait_at_the_other_end, daemon=True)
    other_end.start()
    try:
        for _ in range(20):
            assert "regular" in project_settings(cwd, home).fault
            assert not went_on.wait(0.01)
    finally:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        other_end.join(5)
    assert went_on.is_set(), "the other end was there, and waiting"


def test_an_endless_device_is_not_read(cwd, home):
    path = cwd / PIS
    path.parent.mkdir(parents=True)
    path.symlink_to("/dev/zero")
    found = project_settings(cwd, home)
    assert (found.compaction, "a link out of" in found.fault) == ({}, True)


@pytest.mark.parametrize("linked", [".pi", ".pi/settings.json"])
def test_a_link_is_followed_inside_the_project_and_not_out_of_it(cwd, home, linked):
    settings = '{"compaction": {"reserveTokens": 77}}'
    for place in (cwd / "shared", cwd.parent / "outside"):
        (place / ".pi").mkdir(parents=True)
        (place / ".pi" / "settings.json").write_text(settings)
        link = cwd / linked
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(place / linked)
        found = project_settings(cwd, home)
        inside = place.is_relative_to(cwd)
        assert (found.compaction != {}, "a link out of" in found.fault) == (inside, not inside)


@pytest.mark.parametrize("relative", ["", ".", "project", "../project", "~/project", "~"])
def test_a_relative_working_directory_is_ignored(cwd, home, relative, monkeypatch):
    put(cwd / ATOMICS, {"compaction": {"a": 1}})
    put(home / "project" / ".atomic" / "settings.json", {"compaction": {"a": 1}})
    monkeypatch.setenv("HOME", str(home))
    for place in (cwd, cwd.parent):
        monkeypatch.chdir(place)
        assert settings_files(relative, home) == []


@pytest.mark.parametrize("tail", ["\0", "/a\0b", "/\ud800", "/" + "x" * 10_000, "/\n", "/\x1b[2J"])
def test_an_impossible_working_directory_is_harmless(cwd, home, tail):
    put(home / ".atomic" / "agent" / "settings.json", {"compaction": {"a": 1}})
    *others, users = settings_files(f"{cwd}{tail}", home)
    assert users.compaction == {"a": 1}
    assert all(one.fault and not one.compaction for one in others)


def test_settings_are_read_and_never_written(cwd, home):
    path = put(cwd / ATOMICS, {"compaction": {"a": 1}})
    path.chmod(0o400)
    before = path.stat()
    settings_files(str(cwd), home)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (b'{"compaction": {"a": 1}}', before.st_mtime_ns)
    assert [one.name for one in path.parent.iterdir()] == ["settings.json"]


def models(*recorded: Any) -> dict[str, Any]:
    return {"providers": {"p": {"models": list(recorded)}}}


def test_windows_come_from_every_provider_and_from_the_file_of_a_sessions_own_agent_first(home):
    assert model_windows(home) == {}
    put(home / MODELS, models({"id": "a", "contextWindow": 1}, {"id": "b", "contextWindow": 2}))
    other = {"models": [{"id": "a", "contextWindow": 3}]}
    put(home / ".atomic" / "agent" / "models.json", {"providers": {**models()["providers"], "q": other}})
    assert model_windows(home) == model_windows(home, ATOMIC) == {"a": 3, "b": 2}
    assert model_windows(home, PI) == {"a": 1, "b": 2}


def test_invalid_windows_are_unknown_and_their_neighbours_read_and_a_file_of_another_shape_has_none(home):
    for window in (None, "200000", 0, -5, True, 1e400, [], {}):
        odd = [{"id": "a", "contextWindow": window}, None, 7, {"contextWindow": 5}]
        path = put(home / ".atomic" / "agent" / "models.json", models(*odd, {"id": "b", "contextWindow": 9}))
        path.write_text(path.read_text().replace("Infinity", "1e400"))
        assert model_windows(home) == {"b": 9}, window
    for content in (b"{", b"[]", {}, *({"providers": one} for one in ([], {"p": None}, {"p": {"models": {}}}))):
        put(home / ".atomic" / "agent" / "models.json", content)
        assert model_windows(home) == {}, content


BIG = ("p", "a/big")


def budget(cwd: Path, home: Path, model: tuple[str, str] | None = BIG) -> CompactionBudget:
    return PI.settings.for_project(str(cwd), home, model).budget


def test_without_settings_pi_has_its_own_defaults_and_atomic_ignores_those_that_only_pi_has(cwd, home):
    assert budget(cwd, home) == CompactionBudget(16_384, 20_000)
    assert ATOMIC.settings.for_project(str(cwd), home, BIG).budget == CompactionBudget(16_384, 0)
    override = {"p/a/big": {"reserveTokens": 400_000}}
    put(cwd / PIS, {"compaction": {"reserveTokens": 5, "keepRecentTokens": 7, "modelOverrides": override}})
    assert ATOMIC.settings.for_project(str(cwd), home, BIG).budget == CompactionBudget(5, 0)


def test_a_model_override_takes_precedence_in_each_field_and_every_file(cwd, home):
    override = {"p/a/big": {"reserveTokens": 400_000}}
    put(home / USERS, {"compaction": {"modelOverrides": override}})
    put(cwd / PIS, {"compaction": {"reserveTokens": 5, "keepRecentTokens": 7}})
    assert budget(cwd, home) == CompactionBudget(400_000, 7)
    for model in (("p", "A/big"), ("p", ""), None):
        assert budget(cwd, home, model) == CompactionBudget(5, 7)
    override = {"p/a/big": {"reserveTokens": 1, "keepRecentTokens": 0}}
    put(cwd / PIS, {"compaction": {"modelOverrides": override}})
    assert budget(cwd, home) == CompactionBudget(1, 0)


def test_what_cannot_be_used_is_skipped_also_in_a_section_on_branch_summaries(cwd, home):
    for wrong in (None, -1, 1.5, "7", True, [], 2**31):
        overrides = {"p/a/big": {"reserveTokens": wrong, "keepRecentTokens": 3}}
        section = {"reserveTokens": wrong, "keepRecentTokens": wrong, "modelOverrides": overrides}
        put(cwd / PIS, {"compaction": section})
        assert budget(cwd, home) == CompactionBudget(16_384, 3), wrong
    for shape in (None, 7, [], {"p/a/big": 7}, {"p/a/big": None}):
        put(cwd / PIS, {"compaction": {"keepRecentTokens": 3, "modelOverrides": shape}})
        assert budget(cwd, home) == CompactionBudget(16_384, 3), shape
    for section in (None, 7, [], "x"):
        put(cwd / PIS, {"branchSummary": section})
        assert project_settings(cwd, home).branch_summary == {}, section
        assert PI.settings.for_project(str(cwd), home).branch_summary == BranchSummarySettings(16_384, False), section


@pytest.mark.parametrize("agent", [PI, ATOMIC])
def test_settings_of_branch_summaries_are_the_first_usable_ones(agent, cwd, home):
    assert agent.settings.for_project(str(cwd), home).branch_summary == BranchSummarySettings(16_384, False)
    for place, section, expected in (
        (home / USERS, {"reserveTokens": 9, "skipPrompt": True}, (9, True)),
        (cwd / PIS, {"reserveTokens": 7, "skipPrompt": False}, (7, False)),
        (cwd / PIS, {"reserveTokens": "7", "skipPrompt": 0}, (9, True)),
    ):
        put(place, {"branchSummary": section})
        assert agent.settings.for_project(str(cwd), home).branch_summary == BranchSummarySettings(*expected)


def test_the_prices_of_configured_models_are_known(home):
    models = [
        {"id": "cached", "cost": {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75}},
        {"id": "plain", "cost": {"input": 2}},
        {"id": "free", "cost": {"input": 0}},
        *({"id": "wrong", "cost": cost} for cost in (None, 7, {"input": -1}, {"input": True}, {"input": 10**400})),
    ]
    put(home / MODELS, {"providers": {"p": {"models": models}}})
    prices = model_prices(home)
    assert prices == {"cached": (3, 0.3, 3.75), "plain": (2, None, None), "free": (0, None, None)}
    assert (prices["cached"].read, prices["cached"].write) == (0.3, 3.75)
    assert (prices["plain"].read, prices["plain"].write) == (2, 2)
