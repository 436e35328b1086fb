"""check_vectors compares OpenCode's sessions with what the client sent, out of either store."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.opencode_stores import OpenCodeStore, documents, text, tool

SYSTEM = {"role": "system", "content": "[instructions]"}
PROBE = {"role": "user", "content": "go on"}
CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"run c1"}'}}
SENT = [
    SYSTEM,
    {"role": "user", "content": "Go."},
    {"role": "assistant", "content": "I will.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
    PROBE,
]


@pytest.fixture
def store(tmp_path):
    store = OpenCodeStore(tmp_path / "opencode")
    store.session()
    store.user("Go.")
    store.assistant(text("I will."), tool("c1", "one"))
    return store


def rows(store: OpenCodeStore) -> dict[str, Any]:
    (session,) = store.run("SELECT * FROM session")
    found = {name: store.run(f"SELECT * FROM {name} ORDER BY id") for name in ("message", "part")}  # noqa: S608  # ours
    for row in (*found["message"], *found["part"]):
        row["data"] = json.loads(row["data"])
    return {"session": session, "messages": found["message"], "parts": found["part"]}


def tree_of(path: Path) -> dict[str, Any]:
    storage = path.parents[2]
    return {str(file.relative_to(storage)): json.loads(file.read_bytes()) for file in sorted(storage.rglob("*.json"))}


def vector(directory: Path, store: object, sent: list[dict[str, Any]]) -> Path:
    directory.mkdir()
    for name, content in {"store": store, "request": {"messages": sent}, "meta": {"client": "x"}}.items():
        (directory / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return directory


def test_a_request_passes_if_it_has_the_messages_of_the_session(redline, tmp_path, store):
    vectors = tmp_path / "vectors"
    vectors.mkdir()
    vector(vectors / "01-rows", rows(store), SENT)
    vector(vectors / "02-documents", tree_of(documents(tmp_path / "older", store)), SENT)
    assert "2 passed, 0 failed" in redline.call("check_vectors", vectors).out
    assert "1 passed, 0 failed" in redline.call("check_vectors", vectors / "01-rows").out


def test_a_request_with_another_message_fails(redline, tmp_path, store):
    other = [*SENT[:3], {**SENT[3], "content": "two"}, PROBE]
    found = redline.call("check_vectors", vector(tmp_path / "01-rows", rows(store), other))
    assert "0 passed, 1 failed" in found.out
    assert found.code == 1


def test_a_store_without_a_session_is_not_a_vector(redline, tmp_path):
    found = redline.call("check_vectors", vector(tmp_path / "01", {"x": 1}, SENT))
    assert "is not a session of OpenCode" in found.err
