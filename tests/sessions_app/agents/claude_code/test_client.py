"""How a dry resume runs Claude Code, what its hook says, when it compacts, and which sessions it has open.

Nothing hostile is opened to find that out, and only a client that has certainly ended has nothing open.
"""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sessions_app.agents.claude_code.edge import store
from sessions_app.agents.claude_code.edge.client import ClaudeCodeHook, ClaudeCodeProgram, sessions_directory
from sessions_app.agents.claude_code.edge.settings import ClaudeCodeSettings, config_directory
from sessions_app.agents.claude_code.edge.store import open_elsewhere
from sessions_app.agents.claude_code.pure.sent import INTERRUPTED
from sessions_app.agents.edge.dry_resume import new_scratch
from sessions_app.agents.pure.hooks import HookReply, HookStep
from sessions_app.agents.registry import model_windows
from sessions_app.sessionlog.context import is_due
from tests.claude_sessions import SESSION_ID, answer
from tests.files import place

CLIENT = ClaudeCodeProgram("claude")
SETTINGS = ClaudeCodeSettings()


@pytest.fixture
def scratch(tmp_path):
    return new_scratch(tmp_path, "http://127.0.0.1:1")


@pytest.mark.parametrize("name", [SESSION_ID, "notes"])
def test_a_session_is_continued_by_the_name_of_its_file_and_a_copy_with_another_name_gets_an_id(scratch, name):
    session_id = CLIENT.place(f"{name}.jsonl", [b"one\n", b"two"], scratch)
    assert str(uuid.UUID(session_id)) == session_id
    assert (session_id == name) == (name == SESSION_ID)
    assert (sessions_directory(scratch) / f"{session_id}.jsonl").read_bytes() == b"one\ntwo"


def test_the_directory_of_a_project_is_named_after_its_path_and_everything_is_written_in_a_home(scratch):
    name = sessions_directory(scratch).name
    assert name.endswith("-project")
    assert name.replace("-", "").isalnum()
    assert name.isascii()
    environment = CLIENT.environment(scratch)
    assert Path(environment["CLAUDE_CONFIG_DIR"]).is_relative_to(scratch.home)
    assert environment["ANTHROPIC_BASE_URL"] == scratch.model_url


def test_a_request_for_a_title_is_not_a_turn_and_the_sentence_about_an_interrupted_call_is_in_short():
    def results(content: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": [answer("t1", content), answer("t2", "fine")]}]

    messages = results(f"{INTERRUPTED[:-1]}: it is not known why.]")
    assert CLIENT.messages({"messages": messages}) is None
    assert CLIENT.messages({"messages": messages, "tools": [{}]}) == results(INTERRUPTED)
    assert CLIENT.messages({"messages": results("go"), "tools": [{}]}) == results("go")


HOOK = ClaudeCodeHook()
SENT = {
    "session_id": "5b1d",
    "transcript_path": "/home/dev/.claude/projects/-p/5b1d.jsonl",
    "cwd": "/p",
    "hook_event_name": "PreCompact",
    "trigger": "manual",
    "custom_instructions": "",
}


def sent(**fields: Any) -> bytes:
    return json.dumps({**SENT, **fields}).encode()


def test_a_question_names_the_session_by_its_path_and_passes_instructions_on_so_far_as_there_is_room():
    assert HOOK.review_request(sent()) == (SENT["transcript_path"], "manual", {})
    assert HOOK.review_request(sent(trigger="auto")).reason == "threshold"
    assert HOOK.review_request(sent(custom_instructions="keep names")).preparation == {"instructions": "keep names"}
    for text in ("😀" * 10_000, "\x01" * 10_000, "\ud800" * 10_000):
        assert len(json.dumps(HOOK.review_request(sent(custom_instructions=text)).preparation)) <= 4_000
    assert HOOK.review_request(sent(custom_instructions=None)).preparation == {}


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b'"x"', b"{", b"{}", b"[" * 100_000),
        *(sent(transcript_path=path) for path in (None, "", "/\0", "/\ud800", ["/x"])),
    ],
)
def test_another_question_is_refused(content):
    with pytest.raises(ValueError):
        HOOK.review_request(content)


def test_nothing_is_printed_that_would_become_a_part_of_the_summary():
    for step, code in ((HookStep.COMPACT, 0), (HookStep.CONTINUE, 2), (HookStep.STOP, 2)):
        reply = HOOK.reply(step, "Words.")
        assert (reply, reply.output) == (HookReply(code, errors="Words."), "")


MODEL = ("anthropic", "claude-opus-5-5")


@pytest.fixture(autouse=True)
def without_variable(monkeypatch):
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)


def put(path: Path, **settings: Any) -> Path:
    return place(path, json.dumps(settings).encode())


def compacts_from(home: Path, cwd: Path, window: int = 200_000) -> int:
    """The least number of tokens at which the client compacts."""
    reserve = SETTINGS.for_project(str(cwd), home, MODEL).budget.reserve_tokens
    found = next(n for n in range(1_000, window, 250) if is_due(n, window, reserve))
    assert not is_due(found - 1, window, reserve)
    return found


AUTO, PERCENT = "CLAUDE_CODE_AUTO_COMPACT_WINDOW", "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"
WINDOWS = {100_000: 67_000, 120_000: 87_000, 20_000: 67_000, 900_000: 167_000, True: 167_000, "many": 167_000}


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({}, 167_000),
        *(({"autoCompactWindow": window}, tokens) for window, tokens in WINDOWS.items()),
        ({"env": {AUTO: "120000"}}, 87_000),
        ({"env": {AUTO: "120000"}, "autoCompactWindow": 150_000}, 87_000),
        ({"autoCompactWindow": 200_000, "env": {PERCENT: "50"}}, 90_000),
        ({"autoCompactWindow": 150_000, "env": {PERCENT: "50"}}, 65_000),
        ({"autoCompactWindow": 200_000, "env": {PERCENT: "95"}}, 167_000),
        ({"env": {PERCENT: "50"}}, 167_000),
        ({"env": "none"}, 167_000),
        ({AUTO: "120000", "env": {"autoCompactWindow": 120_000}}, 167_000),
    ],
    ids=str,
)
def test_the_client_compacts_from_a_number_of_tokens_on(home, cwd, settings, tokens):
    put(home / ".claude" / "settings.json", **settings)
    assert compacts_from(home, cwd) == tokens


def test_the_local_settings_come_first_then_the_projects_then_the_users(home, cwd):
    paths = [found / ".claude" / "settings.json" for found in (home, cwd)] + [cwd / ".claude" / "settings.local.json"]
    for window, path in zip((110_000, 120_000, 130_000), paths, strict=True):
        put(path, autoCompactWindow=window)
        assert compacts_from(home, cwd) == window - 33_000
    assert [found.path for found in SETTINGS.for_project(str(cwd), home).files] == paths[::-1]


@pytest.mark.parametrize(
    ("settings", "is_final"),
    [
        ({"autoCompactEnabled": False}, False),
        ({"env": {"DISABLE_AUTO_COMPACT": "1"}}, True),
        ({"env": {"DISABLE_COMPACT": "true"}, "autoCompactEnabled": True}, True),
    ],
    ids=str,
)
def test_automatic_compaction_can_be_switched_off(home, cwd, settings, is_final):
    assert SETTINGS.for_project(str(cwd), home).switched_off_in is None
    path = put(home / ".claude" / "settings.json", **settings)
    assert SETTINGS.for_project(str(cwd), home).switched_off_in == path
    put(cwd / ".claude" / "settings.json", autoCompactEnabled=True)
    assert (SETTINGS.for_project(str(cwd), home).switched_off_in == path) is is_final


def test_only_settings_of_compaction_are_shown_and_a_model_with_the_long_window_is_known_by_name(home, cwd):
    assert model_windows(home) == {}
    others = {"apiKeyHelper": "secret", "env": {"KEY": "secret"}, "model": "claude-opus-5-5[1m]"}
    put(home / ".claude" / "settings.json", autoCompactWindow=1_000_000, **others)
    assert SETTINGS.user_file(home).compaction == {"autoCompactWindow": 1_000_000}
    assert model_windows(home) == {"claude-opus-5-5": 1_000_000}
    assert compacts_from(home, cwd, 1_000_000) == 967_000


def test_the_users_directory_can_be_configured(home, cwd, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
    path = put(tmp_path / "elsewhere" / "settings.json", autoCompactWindow=120_000)
    assert config_directory(home) == path.parent
    assert SETTINGS.user_file(home).path == path
    assert compacts_from(home, cwd) == 87_000
    # One that is not absolute is ignored.
    assert config_directory(home, {"CLAUDE_CONFIG_DIR": "here"}) == home / ".claude"


def test_no_link_out_of_the_project_is_followed_and_a_hostile_directory_of_a_session_is_harmless(home, cwd, tmp_path):
    secret = put(tmp_path / "secret.json", autoCompactEnabled=False)
    (cwd / ".claude").mkdir(parents=True)
    (cwd / ".claude" / "settings.json").symlink_to(secret)
    (found,) = SETTINGS.for_project(str(cwd), home).files
    assert (found.compaction, bool(found.fault)) == ({}, True)
    for hostile in ("", "relative", "/home/\0", "/dev/null"):
        assert SETTINGS.for_project(hostile, home).files == (), hostile


ELSEWHERE = "linux:0123456789abcdef0123456789abcdef:pid:[1]"
OWN = os.getpid()
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows when a process started")


@pytest.fixture
def session(tmp_path):
    return place(tmp_path / ".claude" / "projects" / "-home-dev-project" / f"{SESSION_ID}.jsonl", b"")


def register(session: Path, name: str, **values: Any) -> Path:
    return place(session.parents[2] / "sessions" / name, json.dumps({"sessionId": SESSION_ID, **values}).encode())


def shown(session: Path, configuration: Path | None = None) -> str:
    """What is shown: "open", "uncertain" or nothing."""
    found = open_elsewhere(session, configuration or session.parents[2])
    return "" if found is None else "open" if found.is_certain else "uncertain"


def start_of_this_process() -> str:
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


def own_domain() -> str:
    machine = Path("/etc/machine-id")
    name = machine.read_text().strip() if machine.exists() else ""
    return f"linux:{name}:{Path('/proc/self/ns/pid').readlink()}"


@pytest.fixture
def ended():
    """The id of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_running_client_has_its_session_open_and_no_other_and_one_that_has_ended_none(session, ended):
    register(session, f"{OWN}.json", pid=OWN)
    assert open_elsewhere(session, session.parents[2]) == (f"is open in Claude Code (process {OWN})", True)
    register(session, f"{OWN}.json", sessionId="another")
    assert not shown(session)
    register(session, f"{ended}.json", pidDomain=own_domain())
    assert not shown(session)


@on_linux
def test_a_later_process_with_the_same_id_is_not_the_client(session):
    register(session, f"{OWN}.json", procStart="1")
    assert not shown(session)
    register(session, f"{OWN}.json", procStart=start_of_this_process())
    assert shown(session) == "open"


def test_a_start_of_another_form_or_that_the_system_does_not_show_proves_nothing(session, monkeypatch, tmp_path):
    for start in (None, 1, "", "soon", "1.5", "1795377836210", "Sun Nov 22 20:11:00 2026", ["1"]):
        register(session, f"{OWN}.json", procStart=start)
        assert shown(session) == "open", start
    monkeypatch.setattr(store, "_PROCESSES", tmp_path / "none")
    register(session, f"{OWN}.json", procStart="1", pidDomain=ELSEWHERE)
    assert shown(session) == "open", "the system does not show it"


def test_a_process_of_another_user_runs(session, monkeypatch):
    monkeypatch.setattr(os, "kill", Mock(side_effect=PermissionError))
    register(session, f"{OWN}.json")
    assert shown(session) == "open"


@on_linux
def test_a_process_of_another_computer_or_container_cannot_be_seen(session, ended):
    register(session, f"{ended}.json", pidDomain=ELSEWHERE, procStart="1")
    found = open_elsewhere(session, session.parents[2])
    assert (f"process {ended}" in found.sentence, found.is_certain) == (True, False)
    register(session, f"{OWN}.json", pidDomain=ELSEWHERE, procStart=start_of_this_process())
    assert shown(session) == "open"


def test_a_damaged_file_of_a_running_process_may_be_of_the_session(session, ended):
    own = session.parents[2] / "sessions" / f"{OWN}.json"
    for content in ("", "[]", "null", "{}", '{"sessionId": 7}', "{" * 5_000):
        register(session, own.name).write_text(content)
        assert shown(session) == "uncertain", content
    own.rename(own.with_name(f"{ended}.json"))
    assert not shown(session)


def test_no_link_is_followed_but_it_may_be_of_the_session(session, tmp_path):
    outside = register(session, "outside.json", sessionId="another").rename(tmp_path / "outside.json")
    of_sessions = session.parents[2] / "sessions"
    (of_sessions / f"{OWN}.json").symlink_to(outside)
    assert shown(session) == "uncertain"
    of_sessions.rename(tmp_path / "elsewhere")
    of_sessions.symlink_to(tmp_path / "elsewhere")
    found = open_elsewhere(session, session.parents[2])
    assert (str(of_sessions) in found.sentence, found.is_certain) == (True, False)


def test_without_a_register_nothing_is_known_and_a_name_that_is_not_a_process_id_is_ignored(session):
    assert not shown(session)
    for name in ("0.json", "99999999999999999999.json", "-1.json", "x.json", "1.key", "²³.json"):
        register(session, name)
        assert not shown(session), name
    of_sessions = session.parents[2] / "sessions"
    of_sessions.rename(of_sessions.with_name("away"))
    place(of_sessions, b"")
    assert shown(session) == "uncertain"


def test_a_linked_directory_of_sessions_has_the_register_of_the_configuration(session, tmp_path):
    real = tmp_path / "disk" / "sessions of Claude"
    real.parent.mkdir()
    session.parents[1].rename(real)
    session.parents[1].symlink_to(real)
    register(session, f"{OWN}.json")
    found = real / "-home-dev-project" / session.name
    assert shown(found, session.parents[2]) == "open"
    assert not shown(found, tmp_path / "another")
    assert not shown(tmp_path / session.name, session.parents[2]), "a copy outside the agent's directory"
