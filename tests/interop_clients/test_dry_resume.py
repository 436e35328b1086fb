"""A dry resume of a session that the real client made: it sends what Redline says that it sends."""

import base64
import json
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from sessions_app.agents.registry import agent_at, reader_of_version
from sessions_app.sessionlog.certificate import PackageOutcome, PackageResult
from sessions_app.storage.session_certificate import certify
from sessions_app.storage.session_loader import load_session
from tests import claude_sessions
from tests.files import place, snapshot
from tests.sessions_app.agents.codex import rollouts

from . import test_claude_code as claude, test_codex as codex
from .claude_runs import ClaudeClient
from .codex_runs import CodexRuns
from .installed import client_program, versions
from .messages_server import MessagesServer
from .opencode_runs import OpencodeRuns
from .scripted_model import ModelReply
from .test_opencode import turn

NOW: Final = datetime(2026, 11, 22, 12, tzinfo=UTC)
IMAGE: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def dry_resume(path: Path, program: Path) -> PackageResult:
    loaded = load_session(path)
    agent = agent_at(loaded.path)
    client = agent.client.find_installed(program)
    assert client is not None
    reader = reader_of_version(agent, client.version)
    found = certify(loaded, agent, reader, NOW, client=client).client
    assert found is not None
    return found


def require_equal(path: Path, program: Path) -> None:
    found = dry_resume(path, program)
    assert found.outcome is PackageOutcome.EQUAL, found.detail


@versions("claude-code")
def test_claude_code(version, tmp_path):
    program = client_program("claude-code", version)
    with MessagesServer() as server:
        client = ClaudeClient(program, tmp_path, server)
        session = claude.conversation(client)
    before = snapshot(tmp_path)
    require_equal(client.session(session), program)
    assert snapshot(tmp_path) == before


@versions("codex")
def test_codex(version, tmp_path, model):
    runs, thread = codex.recorded_thread(version, tmp_path, model)
    before = snapshot(tmp_path)
    require_equal(runs.files(thread)[-1], client_program("codex", version))
    assert snapshot(tmp_path) == before


def png(width: int, height: int) -> str:
    """A grey image of this size."""
    rows = zlib.compress((b"\0" + bytes(width)) * height)
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\0\0\0\0"
    chunks = ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b""))
    framed = (
        len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big") for kind, body in chunks
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(framed)).decode()


@versions("codex")
def test_codex_with_its_own_provider_and_items_that_it_sends_in_another_form(version, tmp_path):
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{png(3000, 2000)}", "detail": None}
    shell = {"type": "local_shell_call", "call_id": "s1", "status": "completed"}
    rollout = rollouts.Rollout(
        rollouts.meta(timestamp="2026-01-05T10:00:00.000Z", originator="codex_exec", source="exec"),
        rollouts.turn_context(),
        rollouts.user("go", phase=None),
        {**shell, "action": {"type": "exec", "command": ["ls"]}},
        rollouts.output("s1", [{"type": "input_text", "text": "seen"}, image]),
        rollouts.user("cut \ud83d"),
        rollouts.answer("done"),
    )
    require_equal(rollout.save(tmp_path / "codex" / "sessions"), client_program("codex", version))


@versions("claude-code")
def test_claude_code_with_half_of_a_surrogate_pair_and_the_notice_of_a_subagent(version, tmp_path):
    lines = [
        *(claude_sessions.user("p1", None), claude_sessions.reply("r1", "p1", claude_sessions.call("c1"))),
        claude_sessions.user("x", "r1", [claude_sessions.answer("c1", "cut \ud83d here")]),
        claude_sessions.reply("r2", "x"),
        claude_sessions.user(
            "n", "r2", [claude_sessions.text("n1"), claude_sessions.text("n2")], origin={"kind": "task-notification"}
        ),
        claude_sessions.reply("r3", "n"),
    ]
    path = tmp_path / ".claude" / "projects" / "p" / f"{claude_sessions.SESSION_ID}.jsonl"
    require_equal(place(path, claude_sessions.timed(lines)), client_program("claude-code", version))


@pytest.fixture
def runs(tmp_path, model):
    return CodexRuns(client_program("codex", codex.NEW), tmp_path, model)


def test_a_fork_of_codex(runs):
    thread = runs.run("first", codex.TURNS[0]).session_id
    fork = runs.run("second", thread=thread, how="fork").session_id
    assert b"history_base" in runs.files(fork)[-1].read_bytes()
    require_equal(runs.files(fork)[-1], Path(runs.program.program))


def test_a_thread_without_an_ordinal_is_refused(runs):
    file = runs.files(runs.run("first").session_id)[-1]
    payload = {"message": "", "replacement_history": []}
    with file.open("ab") as rollout:
        line = {"timestamp": "2026-11-22T10:00:00.000Z", "type": "compacted", "payload": payload}
        rollout.write(json.dumps(line).encode() + b"\n")
    found = dry_resume(file, Path(runs.program.program))
    assert found.outcome is PackageOutcome.REFUSED
    assert "ordinal" in found.detail


@versions("opencode")
def test_opencode(version, tmp_path, model):
    program = client_program("opencode", version)
    opencode = OpencodeRuns(program, tmp_path, model)
    session = opencode.run("first", turn(1)).session_id
    opencode.run("second", [ModelReply("Second done.", "a second thought")], session=session)
    require_equal(opencode.database / session, program)


@versions("opencode")
def test_opencode_with_every_kind_of_part(version, tmp_path, model):
    program = client_program("opencode", version)
    opencode = OpencodeRuns(program, tmp_path, model)
    session = opencode.run("first", turn(1)).session_id
    image = {"type": "file", "mime": "image/png", "filename": "x.png", "url": f"data:image/png;base64,{IMAGE}"}
    pdf = {"type": "file", "mime": "application/pdf", "url": "data:application/pdf;base64,JVBERi0xLjQK"}
    user, assistant, *_ = opencode.rows("SELECT id, time_created FROM message ORDER BY time_created, id")
    added: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (user, image),
        (user, pdf),
        (user, {"type": "text", "text": "Added.", "synthetic": True}),
        (user, {"type": "text", "text": "Left out.", "ignored": True}),
        (user, {"type": "subtask", "prompt": "p", "description": "d", "agent": "general"}),
        (user, {"type": "agent", "name": "general"}),
        (user, {"type": "file", "mime": "application/x-directory", "url": "file:///"}),
        (assistant, {"type": "patch", "hash": "5eed", "files": []}),
        (assistant, image),
    ]
    for number, (message, data) in enumerate(added):
        at = user["time_created"]
        row = (f"prt_zzz{number}", message["id"], session, at, at, json.dumps(data))
        opencode.rows("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", *row)
    tools = opencode.rows("SELECT id, data FROM part WHERE data ->> 'type' = 'tool' ORDER BY id")
    part = json.loads(tools[0]["data"])
    attachment = {**image, "id": "prt_a", "sessionID": session, "messageID": assistant["id"]}
    part["state"]["attachments"] = [attachment]
    opencode.rows("UPDATE part SET data = ? WHERE id = ?", json.dumps(part), tools[0]["id"])
    require_equal(opencode.database / session, program)


@pytest.mark.parametrize("field", ["output", "text"])
def test_what_the_client_sends_of_another_session_is_different(field, runs):
    """A dry resume that compares nothing would call these equal as well."""
    file = runs.files(runs.run("first", codex.TURNS[0]).session_id)[-1]
    loaded = load_session(file)
    agent = agent_at(file)
    client = agent.client.find_installed(Path(runs.program.program))
    assert client is not None
    reader = reader_of_version(agent, client.version)
    context = reader.rebuild(loaded.tree.branch(loaded.leaf_id))
    with agent.store.open(file) as reading:
        messages = list(agent.format.sent_messages(context, lambda entry: reading.read_at(entry.offset, entry.length)))
        content = [reading.read_at(0, loaded.state.size)]
    changed = json.loads(json.dumps(messages).replace(f'"{field}": "', f'"{field}": "!', 1))
    assert client.resume(file.name, content, messages).outcome is PackageOutcome.EQUAL
    assert client.resume(file.name, content, changed).outcome is PackageOutcome.DIFFERENT
    assert client.resume(file.name, content, messages[:-1]).outcome is PackageOutcome.DIFFERENT
