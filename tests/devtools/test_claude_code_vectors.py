"""Vectors of Claude Code: a session with what real clients sent of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from devtools.vector_files import find_cases
from sessions_app.sessionlog.errors import BadInput
from tests.claude_sessions import Object, attachment, call, reply, talk, text, timed, user


def message(role: str, *blocks: Any) -> Object:
    return {"role": role, "content": [text(block) if isinstance(block, str) else block for block in blocks]}


def write_vector(directory: Path, lines: list[Object], **clients: Any) -> Path:
    (directory / "one.jsonl").write_bytes(timed(lines))
    file = directory / "one.json"
    versions = {version.replace("_", "."): client for version, client in clients.items()}
    file.write_text(json.dumps({"file": "one.jsonl", "clients": versions}))
    return file


def differences(path: Path) -> list[str]:
    return [str(found) for case in find_cases([path]) for found in case.differences()]


TWO = {"context": [message("user", "p1"), message("assistant", "r1")]}


@pytest.mark.parametrize("by_file", [True, False])
def test_equal_contexts_pass(tmp_path, *, by_file):
    file = write_vector(tmp_path, [*talk(1)], **{"2_1_330": TWO, "2_1_112": TWO})
    path = file if by_file else tmp_path
    assert [case.name for case in find_cases([path])] == ["one.json"]
    assert differences(path) == []


def test_each_client_that_sent_something_else_is_named(tmp_path):
    other = {"context": [message("user", "p1"), message("assistant", "other")]}
    write_vector(tmp_path, [*talk(1)], **{"2_1_330": TWO, "2_1_112": other, "2_1_1": {"error": "refused"}})
    assert differences(tmp_path) == ["2.1.112 $[1].content[0].text: expected 'other', found 'r1'"]


def test_the_clients_own_words_are_not_compared(tmp_path):
    queued = attachment("a", "p1", type="queued_command", prompt="more")
    lines = [user("p1", None), queued, reply("r1", "a", call("c1"))]
    open_call = call("c1")
    result = {"type": "tool_result", "tool_use_id": "c1", "is_error": True}
    context = [
        message("user", "p1"),
        message("system", "You were told:\nmore\nListen."),
        message("assistant", open_call),
        message("user", result | {"content": "[Tool call interrupted: who knows]"}),
        message("assistant", "No response requested."),
    ]
    write_vector(tmp_path, lines, **{"2_1_330": {"context": context}})
    assert differences(tmp_path) == []
    context[1] = message("system", "You were told nothing.")
    write_vector(tmp_path, lines, **{"2_1_330": {"context": context}})
    assert len(differences(tmp_path)) == 1


def test_a_file_without_clients_is_refused(tmp_path):
    file = write_vector(tmp_path, [*talk(1)])
    file.write_text("{}")
    with pytest.raises(BadInput, match="has no requests of clients"):
        differences(tmp_path)


def test_a_client_without_a_version_is_refused(tmp_path):
    write_vector(tmp_path, [*talk(1)], newest=TWO)
    with pytest.raises(BadInput, match="newest is not a version"):
        differences(tmp_path)
