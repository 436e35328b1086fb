"""Codex itself: dry resumes, by programs that take its place; its hook; when it compacts; and its lock on a thread.

Redline holds the lock during a write, and it is a certain sign that the thread is open.
"""

import fcntl
import json
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from sessions_app.agents.codex.agent import CODEX
from sessions_app.agents.codex.edge.client import CodexHook, CodexProgram, ThreadFiles, codex_home
from sessions_app.agents.codex.edge.store import thread_id_of, writer_lock
from sessions_app.agents.edge.dry_resume import new_scratch
from sessions_app.agents.pure.hooks import HookReply, HookStep
from sessions_app.agents.registry import agent_at, agent_of, model_windows
from sessions_app.disk import open_files
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import split_lines
from tests.files import place, unchanged
from tests.installation import refusal
from tests.processes import held as held_lock

from .rollouts import THREAD, Item, Rollout, answer, call, line, meta, output, turn_context, user

BASE: Final = "01a20000-0000-7000-8000-00000000000b"
NAME: Final = f"rollout-2026-01-05T10-00-00-{THREAD}.jsonl"
PROGRAM: Final = (
    f"#!{sys.executable} -IS"
    + """
import json, os, pathlib, sys, tomllib, urllib.request

if sys.argv[1:] == ["--version"]:
    print("codex-cli 0.169.0")
    sys.exit()
home = pathlib.Path(os.environ["CODEX_HOME"])
configured = tomllib.loads((home / "config.toml").read_text())
assert os.environ["OPENAI_BASE_URL"] == configured["openai_base_url"]


def text(role, *texts):
    return {"role": role, "type": "message", "content": [{"type": "input_text", "text": one} for one in texts]}


def send(*items):
    body = {"model": configured["model"], "input": [text("developer", "base"), *items]}
    url = configured["openai_base_url"] + "/responses"
    headers = {"content-type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()


prompt = text("user", sys.argv[-1])
is_resumed = "resume" in sys.argv
files = sorted(home.rglob("rollout-*")) if is_resumed else []
lines = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
items = [line["payload"] for line in lines if line["type"] == "response_item"]
added = text("user", "<environment_context>of a new run")
"""
)
"""It sends nothing yet."""
HONEST: Final = "send(*items, added, prompt)\n"


@pytest.fixture
def thread(redline):
    rollout = Rollout(meta(), turn_context(), user("go"), call(), output(), answer("done"))
    return place(redline.home / ".codex" / "sessions" / NAME, rollout.content)


@pytest.fixture
def certified(redline, thread, tmp_path):
    """Certifies the thread, or another file, by a client that does this."""

    def certify(does: str, *options: str, path: Path = thread) -> Any:
        return redline.call("check", path, *options, "--client", program(tmp_path, PROGRAM + does))

    return certify


def program(directory: Path, text: str) -> Path:
    path = place(directory / "codex", text.encode())
    path.chmod(0o700)
    return path


METADATA: Final = "{'internal_chat_message_metadata_passthrough': {'content_item_kinds': ['unknown']}}"


@pytest.mark.parametrize("does", [HONEST, f"send(*({METADATA} | one for one in items), added, prompt | {METADATA})\n"])
def test_a_client_that_sends_the_same_messages(redline, certified, does):
    with unchanged(redline.home / ".codex"):
        found = certified(does).ok()
        assert "Client: Codex 0.169.0 sends the same messages when it continues a copy." in found.out
        assert "opened as codex because the client is Codex 0.169.0" in found.out


@pytest.mark.parametrize(
    ("does", "words"),
    [
        (
            "if is_resumed: items[-1] = text('assistant', 'other')\n" + HONEST,
            "another context: message 4, assistant, has another content",
        ),
        (
            "if is_resumed: send(*items, text('user', 'summarise'))\n" + HONEST,
            "another context: it compacts the session before it continues it",
        ),
        (
            "send(*items, *([text('user', 'summarise')] if is_resumed else [added, prompt]))",
            "another context: it compacts the session, and does not continue it",
        ),
        ("if is_resumed: sys.exit('no such thread')\n" + HONEST, "does not continue a copy: no such thread"),
    ],
    ids=["changed", "compacts", "only-compacts", "refuses"],
)
def test_a_client_that_does_not_send_them(certified, does, words):
    found = certified(does)
    assert words in found.out
    assert found.code == 1


def test_a_client_that_cannot_be_used_is_not_a_difference(certified):
    found = certified("sys.exit('no \\x1b[31mlicence')").ok()
    assert "Client: not compared. Codex 0.169.0 could not be used: it does not run without" in found.out
    assert "licence" in found.out
    assert "\x1b" not in found.out


def test_a_copy_with_another_name_and_another_entry_than_the_last_are_not_continued(certified, thread):
    middle = certified(HONEST, "--branch", "2", "--json").json["client"]
    renamed = certified(HONEST, "--json", path=thread.rename(thread.with_name("notes.jsonl"))).json["client"]
    for found, words in ((middle, "at its last entry"), (renamed, "has no thread id")):
        assert (found["outcome"], words in found["detail"]) == ("failed", True)


def test_a_program_that_prints_no_version_is_refused(tmp_path):
    for path in (tmp_path / "nothing", program(tmp_path, "#!/bin/sh\necho hello\n")):
        with pytest.raises(BadInput, match="prints a version"):
            CODEX.client.find_installed(path)


def test_the_client_on_the_path(tmp_path, monkeypatch):
    python = [directory for directory in ("/usr/bin", "/usr/local/bin") if Path(directory, "env").exists()]
    monkeypatch.setenv("PATH", ":".join([str(tmp_path), *python]))
    assert CODEX.client.find_installed(None) is None
    program(tmp_path, "#!/bin/sh\necho codex-cli 0.104.0\n")
    found = CODEX.client.find_installed(None)
    assert (found.name, found.version) == ("Codex", "0.104.0")


def content_of(*recorded: Item, base: bytes = b"") -> list[bytes]:
    return [base + b"".join(json.dumps(one).encode() + b"\n" for one in recorded)]


def test_a_thread_is_taken_apart_into_its_files_unless_a_header_names_another_end():
    first = content_of(meta(BASE), line("response_item", user("go")))[0]
    own_meta = meta(history_base={"thread_id": BASE, "end_byte_offset": len(first)})
    whole = content_of(own_meta, line("response_item", answer("ok")), base=first)[0]
    files = dict(ThreadFiles(NAME, [whole]))
    expected = {f"rollout-2026-01-01T00-00-00-{BASE}.jsonl": first, NAME: whole[len(first) :]}
    assert {name: b"".join(lines) for name, lines in files.items()} == expected
    first = content_of(meta())[0]
    for thread_id, end in ((BASE, 7), ("../../escaped", len(first)), ("\ud800", len(first)), (None, None)):
        again = meta(history_base={"thread_id": thread_id, "end_byte_offset": end})
        assert [name for name, _ in ThreadFiles(NAME, content_of(again, base=first))] == [NAME]


def test_hostile_names_in_a_thread_are_written_as_text(tmp_path):
    hostile = '"]\nnotify = ["/bin/sh"]\n\ud800'
    content = content_of(meta(model_provider=hostile), turn_context(hostile))
    scratch = new_scratch(tmp_path, "http://127.0.0.1:1")
    assert CodexProgram("codex").place(NAME, content, scratch) == THREAD
    written = tomllib.loads((codex_home(scratch) / "config.toml").read_text())
    assert "notify" not in written
    assert written["model"] == written["model_provider"] == hostile.replace("\ud800", "\ufffd")


def test_the_settings_of_a_thread_are_its_latest():
    settings = {"model_provider_id": "second", "model": "larger"}
    changed = line("event_msg", {"type": "thread_settings_applied", "thread_settings": settings})
    damaged = b'{"type":"turn_context","payload":\n{"type":"session_meta","payload":7}\n'
    content = content_of(meta(model_provider="first"), turn_context("small"), changed)
    thread = ThreadFiles(NAME, [*content, damaged])
    assert (thread.model, thread.providers) == ("larger", ["first", "second"])
    ((_, lines),) = thread
    assert b"".join(lines) == b"".join(content) + damaged
    assert len(lines) == len(list(split_lines([*content, damaged])))


HOOK = CodexHook()
SENT = {
    "session_id": "0199",
    "turn_id": "0200",
    "transcript_path": "/home/dev/.codex/sessions/2026/01/01/rollout-2026-0199.jsonl",
    "cwd": "/p",
    "hook_event_name": "PreCompact",
    "model": "gpt",
    "trigger": "auto",
}


def sent(**fields: Any) -> bytes:
    return json.dumps({**SENT, **fields}).encode()


def test_the_session_is_named_by_its_path_or_by_its_id():
    assert HOOK.review_request(sent()) == (SENT["transcript_path"], "threshold", {"model": "gpt"})
    assert HOOK.review_request(sent(transcript_path=None, trigger="manual"))[:2] == ("0199", "manual")


@pytest.mark.parametrize("content", [b"", b"null", b"{}", sent(transcript_path=None, session_id=None)])
def test_another_question_is_refused(content):
    with pytest.raises(ValueError):
        HOOK.review_request(content)


def test_codex_compacts_without_output_and_stops_with_its_reason():
    assert HOOK.reply(HookStep.COMPACT, "Words.") == HookReply(errors="Words.")
    for step in (HookStep.CONTINUE, HookStep.STOP):
        reply = HOOK.reply(step, "“Words.”")
        assert json.loads(reply.output) == {"continue": False, "stopReason": "“Words.”"}
        assert reply == HookReply(output=reply.output)
        assert reply.output.isascii()


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """Writes the user's configuration."""
    monkeypatch.delenv("CODEX_HOME", raising=False)
    return lambda text: place(tmp_path / ".codex" / "config.toml", text)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", 90_000),
        ("model_auto_compact_token_limit = 20000", 20_000),
        ("model_auto_compact_token_limit = 95000", 90_000),
        ("profile = 'p'\n[profiles.p]\nmodel_auto_compact_token_limit = 5000", 5_000),
        ("model_auto_compact_token_limit = true", 90_000),
    ],
)
def test_codex_compacts_at_its_limit_or_at_90_percent(tmp_path, configured, text, allowed):
    configured(text.encode())
    found = CODEX.settings.for_project("/work", tmp_path, ("openai", "gpt-5"))
    assert 100_000 - found.budget.reserve(100_000) == allowed
    assert found.budget.reserve(None) == 0


def test_a_broken_configuration_is_reported_and_a_good_one_has_the_models_window(tmp_path, configured, monkeypatch):
    for text in (b"model = ", b"\xff"):
        configured(text)
        assert "TOML" in CODEX.settings.user_file(tmp_path).fault
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / ".codex"))
    configured(b'model = "own"\nmodel_context_window = 64000')
    assert model_windows(Path("/elsewhere")) == {"own": 64_000}


def test_sessions_are_in_the_directory_of_codex_and_are_recognised_anywhere(tmp_path):
    assert CODEX.store.roots({}) == ("~/.codex/sessions", "~/.codex/archived_sessions")
    expected = ("/data/codex/sessions", "/data/codex/archived_sessions")
    assert CODEX.store.roots({"CODEX_HOME": "/data/codex"}) == expected
    path = Rollout(meta(), user("a")).save(tmp_path)
    assert agent_of(path) == agent_of(Path("/home/x/.codex/sessions/a.jsonl")) == "codex"
    assert agent_at(path) is CODEX


@pytest.fixture
def session(tmp_path):
    return Rollout(meta()).save(tmp_path / "codex" / "sessions" / "2026" / "01" / "05")


def lock_of(session: Path) -> Path:
    return session.parents[4] / "thread-writer-locks" / f"{THREAD}.lock"


@contextmanager
def held(session: Path) -> Iterator[None]:
    """A client has the thread open."""
    lock = place(lock_of(session), b"")
    with held_lock(lock):
        yield
        lock.unlink()


def is_open(session: Path) -> bool:
    """Whether Codex certainly has the thread open."""
    found = CODEX.store.open_elsewhere(session)
    return found is not None and found.is_certain and "Codex" in found.sentence


def can_lock(session: Path) -> bool:
    with lock_of(session).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_client_cannot_open_the_thread_during_a_write_and_the_lock_of_a_killed_one_is_free(session):
    with writer_lock(session):
        assert not can_lock(session)
        assert is_open(session)
    assert can_lock(session)
    place(lock_of(session), b"")
    assert CODEX.store.open_elsewhere(session) is None
    with writer_lock(session):
        assert not can_lock(session)


def test_an_open_thread_is_certainly_open_and_not_written_to(session):
    assert CODEX.store.open_elsewhere(session) is None
    with held(session):
        assert is_open(session)
        assert refusal(writer_lock(session).__enter__, str(session), "fork") == "4 open_in_agent"
    assert CODEX.store.open_elsewhere(session) is None


def test_a_thread_is_perhaps_open_if_the_system_does_not_show_who_holds_its_lock(session, tmp_path, monkeypatch):
    monkeypatch.setattr(open_files, "_SYSTEM", tmp_path / "nothing")
    assert CODEX.store.open_elsewhere(session) is None
    with held(session):
        assert CODEX.store.open_elsewhere(session).is_certain is False


def test_a_session_elsewhere_has_no_lock(tmp_path):
    path = Rollout(meta()).save(tmp_path)
    with writer_lock(path):
        assert list(tmp_path.iterdir()) == [path]
    assert CODEX.store.open_elsewhere(path) is None


def test_a_lock_that_is_a_link_is_not_followed(session, tmp_path):
    lock_of(session).parent.mkdir()
    lock_of(session).symlink_to(place(tmp_path / "target", b""))
    with pytest.raises(Exception, match="symbolic link"), writer_lock(session):
        pass


@pytest.mark.parametrize(
    ("name", "thread"),
    [
        (NAME, THREAD),
        (NAME.replace(".", "_01a20000-0000-7000-8000-0000000000aa."), THREAD),
        ("rollout-x.jsonl", ""),
        (f"{THREAD}.jsonl", ""),
    ],
)
def test_a_file_is_named_after_its_thread(name, thread):
    assert thread_id_of(Path(name)) == thread
    if thread:
        assert CODEX.client.resume_command(Path(name)) == ("codex", "resume", thread)
