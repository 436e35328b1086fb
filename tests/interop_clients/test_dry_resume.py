"""A dry resume of a session that the real client made: it sends what Redline says that it sends."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from sessions_app.agents.registry import agent_at, reader_of_version
from sessions_app.sessionlog.certificate import PackageOutcome, PackageResult
from sessions_app.storage.session_certificate import certify
from sessions_app.storage.session_loader import load_session
from tests.files import snapshot

from .claude_runs import ClaudeClient
from .codex_runs import CodexRuns
from .installed import client_program, versions
from .messages_server import MessagesServer, ScriptedReply, call_block, said, text_block, thinking_block
from .opencode_runs import OpencodeRuns
from .scripted_model import ModelReply, ScriptedModel
from .test_runs import CODEX_TURN, OPENCODE_TURN

NOW: Final = datetime(2026, 11, 22, 12, tzinfo=UTC)
IMAGE: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
CLAUDE_TURN: Final = (
    ScriptedReply(
        [thinking_block("hm"), text_block("I look."), call_block("t1", "Bash", command="echo one")]
    ),
    ScriptedReply([call_block("t2", "Bash", command="echo two"), call_block("t3", "Bash", command="exit 3")]),
    said("All done."),
)


def dry_resume(path: Path, program: Path) -> PackageResult:
    loaded = load_session(path)
    agent = agent_at(loaded.path)
    client = agent.find_client(program)
    assert client is not None
    reader = reader_of_version(agent, client.version)
    found = certify(loaded, agent, reader, NOW, client=client).client
    assert found is not None
    return found


@versions("claude-code")
def test_claude_code(version: str, tmp_path: Path) -> None:
    program = client_program("claude-code", version)
    with MessagesServer() as server:
        claude = ClaudeClient(program, tmp_path, server)
        session = claude.say("first", *CLAUDE_TURN)
        claude.say("second", said("Second done."), resume=session)
    before = snapshot(tmp_path)
    assert dry_resume(claude.session(session), program).outcome is PackageOutcome.EQUAL
    assert snapshot(tmp_path) == before


@versions("codex")
def test_codex(version: str, tmp_path: Path, model: ScriptedModel) -> None:
    program = client_program("codex", version)
    codex = CodexRuns(program, tmp_path, model)
    thread = codex.run("first", CODEX_TURN).thread_id
    codex.run("second", thread=thread)
    before = snapshot(tmp_path)
    assert dry_resume(codex.files(thread)[-1], program).outcome is PackageOutcome.EQUAL
    assert snapshot(tmp_path) == before


def test_a_fork_of_codex(tmp_path: Path, model: ScriptedModel) -> None:
    program = client_program("codex", "0.169.0")
    codex = CodexRuns(program, tmp_path, model)
    thread = codex.run("first", CODEX_TURN).thread_id
    fork = codex.run("second", thread=thread, how="fork").thread_id
    assert b"history_base" in codex.files(fork)[-1].read_bytes()
    assert dry_resume(codex.files(fork)[-1], program).outcome is PackageOutcome.EQUAL


def test_a_thread_without_an_ordinal_is_refused(tmp_path: Path, model: ScriptedModel) -> None:
    program = client_program("codex", "0.169.0")
    codex = CodexRuns(program, tmp_path, model)
    file = codex.files(codex.run("first").thread_id)[-1]
    payload = {"message": "", "replacement_history": []}
    with file.open("ab") as rollout:
        line = {"timestamp": "2026-11-22T10:00:00.000Z", "type": "compacted", "payload": payload}
        rollout.write(json.dumps(line).encode() + b"\n")
    found = dry_resume(file, program)
    assert found.outcome is PackageOutcome.REFUSED
    assert "ordinal" in found.detail


@versions("opencode")
def test_opencode(version: str, tmp_path: Path, model: ScriptedModel) -> None:
    program = client_program("opencode", version)
    opencode = OpencodeRuns(program, tmp_path, model)
    session = opencode.run("first", OPENCODE_TURN).session_id
    opencode.run("second", [ModelReply("Second done.", "a second thought")], session=session)
    found = dry_resume(opencode.database / session, program)
    assert found.outcome is PackageOutcome.EQUAL, found.detail


@versions("opencode")
def test_opencode_with_every_kind_of_part(version: str, tmp_path: Path, model: ScriptedModel) -> None:
    program = client_program("opencode", version)
    opencode = OpencodeRuns(program, tmp_path, model)
    session = opencode.run("first", OPENCODE_TURN).session_id
    image = {
        "type": "file",
        "mime": "image/png",
        "filename": "x.png",
        "url": f"data:image/png;base64,{IMAGE}",
    }
    pdf = {"type": "file", "mime": "application/pdf", "url": "data:application/pdf;base64,JVBERi0xLjQK"}
    with closing(sqlite3.connect(opencode.database)) as connection, connection:
        messages = connection.execute("SELECT id, time_created, data FROM message ORDER BY time_created, id")
        (user, at, _), (assistant, _, _), *_ = messages.fetchall()
        added: list[tuple[str, dict[str, Any]]] = [
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
            row = (f"prt_zzz{number}", message, session, at, at, json.dumps(data))
            connection.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)
        parts = connection.execute("SELECT id, data FROM part ORDER BY id").fetchall()
        row_id, part = next((row_id, json.loads(data)) for row_id, data in parts if '"tool"' in data)
        part["state"]["attachments"] = [
            {**image, "id": "prt_a", "sessionID": session, "messageID": assistant}
        ]
        connection.execute("UPDATE part SET data = ? WHERE id = ?", (json.dumps(part), row_id))
    found = dry_resume(opencode.database / session, program)
    assert found.outcome is PackageOutcome.EQUAL, found.detail


@pytest.mark.parametrize("field", ["output", "text"])
def test_what_the_client_sends_of_another_session_is_different(
    field: str, tmp_path: Path, model: ScriptedModel
) -> None:
    """A dry resume that compares nothing would call these equal as well."""
    program = client_program("codex", "0.169.0")
    codex = CodexRuns(program, tmp_path, model)
    file = codex.files(codex.run("first", CODEX_TURN).thread_id)[-1]
    loaded = load_session(file)
    agent = agent_at(file)
    client = agent.find_client(program)
    assert client is not None
    reader = reader_of_version(agent, client.version)
    context = reader.rebuild(loaded.tree.branch(loaded.leaf_id))
    with agent.open(file) as reading:
        messages = list(
            agent.sent_messages(context, lambda entry: reading.read_at(entry.offset, entry.length))
        )
        content = [reading.read_at(0, loaded.state.size)]
    changed = json.loads(json.dumps(messages).replace(f'"{field}": "', f'"{field}": "!', 1))
    assert client.resume(file.name, content, messages).outcome is PackageOutcome.EQUAL
    assert client.resume(file.name, content, changed).outcome is PackageOutcome.DIFFERENT
    assert client.resume(file.name, content, messages[:-1]).outcome is PackageOutcome.DIFFERENT
