"""A dry resume of a thread, by programs that take the place of Codex."""

import json
import stat
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from sessions_app.agents.codex.agent import CODEX
from sessions_app.agents.codex.client import CodexProgram, codex_home
from sessions_app.agents.codex.thread_files import ThreadFiles
from sessions_app.agents.dry_resume.scratch import new_scratch
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.lines import split_lines
from tests.files import place, snapshot

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


def program(tmp_path: Path, does: str) -> Path:
    path = tmp_path / "codex"
    path.write_text(PROGRAM + does)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_client_that_sends_the_same_messages(redline, thread, tmp_path):
    before = snapshot(redline.home / ".codex")
    found = redline.call("certify", thread, "--client", program(tmp_path, HONEST))
    assert found.code == 0, found.out
    assert "Client: Codex 0.169.0 sends the same messages when it continues a copy." in found.out
    assert "read as codex because the client is Codex 0.169.0" in found.out
    assert snapshot(redline.home / ".codex") == before


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
def test_a_client_that_does_not_send_them(redline, thread, tmp_path, does, words):
    found = redline.call("certify", thread, "--client", program(tmp_path, does))
    assert words in found.out
    assert found.code == 1


def test_a_client_that_cannot_be_used_is_not_a_difference(redline, thread, tmp_path):
    found = redline.call("certify", thread, "--client", program(tmp_path, "sys.exit('no \\x1b[31mlicence')"))
    assert found.code == 0
    assert "Client: not compared. Codex 0.169.0 could not be used: it does not run without" in found.out
    assert "licence" in found.out
    assert "\x1b" not in found.out


def test_a_copy_with_another_name_is_not_found_by_the_client(redline, thread, tmp_path):
    renamed = thread.rename(thread.with_name("notes.jsonl"))
    found = redline.call("certify", renamed, "--client", program(tmp_path, HONEST), "--json").json
    assert found["client"]["outcome"] == "failed"
    assert "has no thread id" in found["client"]["detail"]


def test_only_the_last_entry_is_continued(redline, thread, tmp_path):
    found = redline.call("certify", thread, "--leaf", "2", "--client", program(tmp_path, HONEST), "--json").json
    assert found["client"]["outcome"] == "failed"
    assert "at its last entry" in found["client"]["detail"]


def test_a_program_that_prints_no_version_is_refused(tmp_path):
    nothing = tmp_path / "codex"
    for content in (None, "#!/bin/sh\necho hello\n"):
        if content is not None:
            nothing.write_text(content)
            nothing.chmod(0o700)
        with pytest.raises(BadInput, match="prints a version"):
            CODEX.find_client(nothing)


def test_the_client_on_the_path(tmp_path, monkeypatch):
    python = [directory for directory in ("/usr/bin", "/usr/local/bin") if Path(directory, "env").exists()]
    monkeypatch.setenv("PATH", ":".join([str(tmp_path), *python]))
    assert CODEX.find_client(None) is None
    (tmp_path / "codex").write_text("#!/bin/sh\necho codex-cli 0.104.0\n")
    (tmp_path / "codex").chmod(0o700)
    found = CODEX.find_client(None)
    assert found is not None
    assert (found.name, found.version) == ("Codex", "0.104.0")


def content_of(*recorded: Item, base: bytes = b"") -> list[bytes]:
    return [base + b"".join(json.dumps(one).encode() + b"\n" for one in recorded)]


def test_a_thread_is_taken_apart_into_its_files():
    first = content_of(meta(BASE), line("response_item", user("go")))[0]
    own_meta = meta(history_base={"thread_id": BASE, "end_byte_offset": len(first)})
    whole = content_of(own_meta, line("response_item", answer("ok")), base=first)[0]
    files = dict(ThreadFiles(NAME, [whole]))
    expected = {f"rollout-2026-01-01T00-00-00-{BASE}.jsonl": first, NAME: whole[len(first) :]}
    assert {name: b"".join(lines) for name, lines in files.items()} == expected


def test_a_header_that_names_another_end_begins_no_file():
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
