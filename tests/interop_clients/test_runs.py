"""The runs of real clients with which the other tests here are made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .codex_runs import CodexRuns
from .installed import client_program, versions
from .opencode_runs import OpencodeRuns
from .scripted_model import Call, ModelReply, ScriptedModel

CODEX_TURN = (
    ModelReply("I look.", "a thought", [Call("c1", "exec_command", {"cmd": "echo one"})]),
    ModelReply(
        calls=[
            Call("c2", "exec_command", {"cmd": "echo two"}),
            Call("c3", "exec_command", {"cmd": "exit 3"}),
        ]
    ),
    ModelReply("All done."),
)


def shell(call_id: str, command: str) -> Call:
    return Call(call_id, "bash", {"command": command, "description": "a test"})


OPENCODE_TURN = (
    ModelReply("I look.", "a thought", [shell("c1", "echo one")]),
    ModelReply(calls=[shell("c2", "echo two"), shell("c3", "exit 3")]),
    ModelReply("All done."),
)


def items(sent: list[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [item for item in sent if item.get("type") == kind]


@versions("codex")
def test_codex_makes_a_thread_and_sends_it_again(version: str, tmp_path: Path, model: ScriptedModel) -> None:
    codex = CodexRuns(client_program("codex", version), tmp_path, model)
    thread = codex.run("first", CODEX_TURN).thread_id
    codex.run("second", [ModelReply("Second done.")], thread=thread)
    file = codex.files(thread)[-1]
    before = file.read_bytes()

    sent = codex.sent(thread)

    assert file.read_bytes() == before
    assert [item["call_id"] for item in items(sent, "function_call")] == ["c1", "c2", "c3"]
    assert [item["call_id"] for item in items(sent, "function_call_output")] == ["c1", "c2", "c3"]
    assert len(items(sent, "reasoning")) == 1
    assert "Second done." in json.dumps(sent)


def test_codex_compacts_a_thread_that_reported_too_many_tokens(tmp_path: Path, model: ScriptedModel) -> None:
    limit = "model_context_window = 100000\nmodel_auto_compact_token_limit = 50000"
    codex = CodexRuns(client_program("codex", "0.169.0"), tmp_path, model, limit)
    thread = codex.run("first", [ModelReply("Much.", tokens=60_000)]).thread_id

    run = codex.run("second", [ModelReply("A summary."), ModelReply("Done.")], thread=thread)

    assert len(run.requests) == 2
    assert b'"compacted"' in codex.files(thread)[-1].read_bytes()


def test_codex_forks_a_thread(tmp_path: Path, model: ScriptedModel) -> None:
    codex = CodexRuns(client_program("codex", "0.169.0"), tmp_path, model)
    thread = codex.run("first", [ModelReply("Done.")]).thread_id

    fork = codex.run("second", thread=thread, how="fork")

    assert fork.thread_id != thread
    assert "first" in json.dumps(fork.requests[0]["input"])


@versions("opencode")
def test_opencode_makes_a_session_and_sends_it_again(
    version: str, tmp_path: Path, model: ScriptedModel
) -> None:
    opencode = OpencodeRuns(client_program("opencode", version), tmp_path, model)
    session = opencode.run("first", OPENCODE_TURN).session_id
    opencode.run("second", [ModelReply("Second done.")], session=session)
    count = "select count(*) as parts from part where session_id = ?"
    before = opencode.rows(count, session)

    sent = opencode.sent(session)

    assert opencode.rows(count, session) == before
    assert [message["tool_call_id"] for message in sent if message["role"] == "tool"] == ["c1", "c2", "c3"]
    assert "a thought" in json.dumps(sent)
    assert "Second done." in json.dumps(sent[-1])


def test_opencode_compacts_a_full_session(tmp_path: Path, model: ScriptedModel) -> None:
    opencode = OpencodeRuns(client_program("opencode", "1.18.33"), tmp_path, model, window=40_000)
    session = opencode.run("first", [ModelReply("Much.", tokens=39_000), ModelReply("A summary.")]).session_id

    assert "compaction" in {
        json.loads(row["data"])["type"]
        for row in opencode.rows("select data from part where session_id = ?", session)
    }


def test_the_server_of_opencode_takes_prompts_and_deletes_parts(tmp_path: Path, model: ScriptedModel) -> None:
    opencode = OpencodeRuns(client_program("opencode", "1.18.33"), tmp_path, model)
    with opencode.served() as server:
        session = server.call("POST", "/session", {"title": "a test"})["id"]
        server.prompt(session, "first", OPENCODE_TURN)
        part = next(
            row
            for row in opencode.rows("select * from part where session_id = ?", session)
            if json.loads(row["data"]).get("callID") == "c1"
        )
        server.call("DELETE", f"/session/{session}/message/{part['message_id']}/part/{part['id']}")
        (request,) = server.prompt(session, "go on")
    assert "c1" not in json.dumps(request["messages"])
    assert "c2" in json.dumps(request["messages"])
