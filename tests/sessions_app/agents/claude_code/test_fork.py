"""A fork has what survives of a context, and nothing that describes the old session."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.targets import Target
from tests.claude_sessions import ClaudeSession, call, text, thinking
from tests.files import snapshot

from .sent_messages import OLDER
from .test_boundary import talk
from .writing import context_ids, lines_of_file, put, written

CHANGED = re.compile(rb'"(?:parentUuid|sessionId|entrypoint)": ?(?:null|"[^"]*")|"usage": ?\{[^{}]*\}')


def forked(session: ClaudeSession, directory: Path, *targets: Target) -> tuple[Path, list[dict[str, Any]]]:
    """The fork without these targets, and its lines."""
    path = put(session, directory)
    before = path.read_bytes()
    fork = written(path, "fork", *targets).path
    assert path.read_bytes() == before
    return fork, lines_of_file(fork)


def test_each_line_follows_the_one_before_it_in_a_session_that_is_named_after_its_file(
    tmp_path: Path,
) -> None:
    session, ids = talk()
    fork, lines = forked(session, tmp_path, Target(ids["c1"]), Target(ids["r1"]), Target(ids["a1"]))
    *nodes, title = lines
    assert [line["uuid"] for line in nodes] == context_ids(fork)
    assert [line["parentUuid"] for line in nodes] == [None, *(line["uuid"] for line in nodes[:-1])]
    assert {line["sessionId"] for line in lines} == {fork.stem}
    assert title["type"] == "custom-title"


def test_what_survives_keeps_every_other_byte(tmp_path: Path) -> None:
    session, ids = talk()
    odd = (
        '{ "type":"user","uuid":"odd", "parentUuid" : "' + str(session.last) + '","n":1.50,"timestamp":'
        '"2026-11-20T10:30:00.000Z","message":{"role":"user" ,"content":"na\\u00efve 🙂 \\ud800"}}'
    )
    session.lines.append(odd.encode())
    fork, _ = forked(session, tmp_path, Target(ids["a1"]))
    recorded = [line for line in session.lines if ids["a1"].encode() not in line.split(b'"uuid"')[1]]
    bare = [CHANGED.sub(b"", line) for line in fork.read_bytes().splitlines()[:-1]]
    assert bare[:-1] == [CHANGED.sub(b"", line) for line in recorded[:-1]]
    assert odd.encode().partition(b'"n"')[2] in fork.read_bytes()


def test_no_line_reports_used_tokens(tmp_path: Path) -> None:
    session = ClaudeSession()
    session.user("p1")
    session.reply("m1", text("a"), text("b"), input_tokens=180_000, cache_read_input_tokens=9)
    _, lines = forked(session, tmp_path)
    usages = [line["message"]["usage"] for line in lines if line["type"] == "assistant"]
    assert len(usages) == 2
    assert not any(any(usage.values()) for usage in usages)


def test_a_headless_session_becomes_one_that_the_client_lists(tmp_path: Path) -> None:
    session, _ = talk()
    _, lines = forked(session, tmp_path)
    assert {line["entrypoint"] for line in lines if "uuid" in line} == {"cli"}


def test_the_title_says_what_it_is_a_fork_of(tmp_path: Path) -> None:
    session, ids = talk()
    session.beside(type="custom-title", customTitle="Fix the parser", sessionId="x")
    _, lines = forked(session, tmp_path)
    assert lines[-1]["customTitle"] == "Fix the parser (forked with Redline)"
    _, lines = forked(session, tmp_path / "curated", Target(ids["a1"]))
    assert lines[-1]["customTitle"] == "Fix the parser (curated with Redline)"


def test_without_a_title_it_is_named_after_its_day(tmp_path: Path) -> None:
    session, _ = talk()
    _, lines = forked(session, tmp_path)
    assert lines[-1]["customTitle"] == "Session of 2026-01-01 00:00 (forked with Redline)"


def test_what_describes_the_old_session_is_left_out(tmp_path: Path) -> None:
    session, ids = talk()
    session.beside(type="api-request", id="q1", sessionId="x")
    session.beside(type="last-prompt", lastPrompt="p2", leafUuid=ids["a2"])
    session.beside(type="cost-state", totalCostUSD=1)
    session.beside(type="queue-operation", operation="enqueue")
    session.node("progress", None, data={"type": "hook_progress"})
    session.node("system", None, subtype="turn_duration", durationMs=5)
    session.attachment("prompt_snapshot", "the instructions")
    (last,) = session.reply("m9")
    fork, lines = forked(session, tmp_path)
    assert {line["type"] for line in lines} == {"user", "assistant", "attachment", "custom-title"}
    assert context_ids(fork)[-1] == last


def test_attachments_stay_unless_they_are_deleted(tmp_path: Path) -> None:
    session, ids = talk()
    _, lines = forked(session, tmp_path)
    assert ids["env"] in {line.get("uuid") for line in lines}
    _, lines = forked(session, tmp_path, Target(ids["env"]))
    assert ids["env"] not in {line.get("uuid") for line in lines}


def test_a_call_and_its_result_lose_their_blocks_and_keep_their_lines(tmp_path: Path) -> None:
    session = ClaudeSession()
    session.user("p1")
    caller = session.assistant("m1", text("s1"), call("c1"), call("c2"))
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
        {"type": "tool_result", "tool_use_id": "c2", "content": "two"},
        {"type": "text", "text": "and more"},
    ]
    answers = session.node("user", None, message={"role": "user", "content": results})
    session.reply("m2")
    path = put(session, tmp_path)
    first, second, rest = [entry_id for entry_id in context_ids(path) if entry_id.startswith(answers)]
    fork = written(path, "fork", Target(caller, 1), Target(first)).path
    lines = {line.get("uuid"): line for line in lines_of_file(fork)}
    assert lines[caller]["message"]["content"] == [text("s1"), call("c2")]
    assert lines[answers]["message"]["content"] == results[1:]
    assert len(context_ids(fork)) == len(context_ids(path)) - 1
    fork = written(path, "fork", Target(rest)).path
    lines = {line.get("uuid"): line for line in lines_of_file(fork)}
    assert lines[answers]["message"]["content"] == results[:2]
    assert second != rest


def test_a_result_can_lose_an_image_and_keep_its_text(tmp_path: Path) -> None:
    session = ClaudeSession()
    session.user("p1")
    session.reply("m1", call("c1"))
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    block = {"type": "tool_result", "tool_use_id": "c1", "content": [text("seen"), image]}
    answer = session.node("user", None, message={"role": "user", "content": [block]})
    session.reply("m2")
    path = put(session, tmp_path)
    fork = written(path, "fork", Target(answer, 1)).path
    lines = {line.get("uuid"): line for line in lines_of_file(fork)}
    assert lines[answer]["message"]["content"] == [{**block, "content": [text("seen")]}]


def test_what_an_earlier_compaction_left_out_is_left_out(tmp_path: Path) -> None:
    session, ids = talk()
    session.boundary(ids["p2"], ids["a2"])
    later = [session.user("p3"), *session.reply("m4", thinking("t"), text("a"))]
    fork, lines = forked(session, tmp_path, Target(later[0]))
    assert context_ids(fork) == [ids["p2"], ids["a2"], later[1], later[2]]
    assert not any(line.get("subtype") == "compact_boundary" for line in lines)


def test_a_line_without_an_id_gets_one(tmp_path: Path) -> None:
    line = {
        "type": "user",
        "timestamp": "2026-11-20T10:00:00.000Z",
        "message": {"role": "user", "content": "p1"},
    }
    session = ClaudeSession()
    session.lines.append(json.dumps(line).encode())
    (answer,) = session.reply("m1")
    path = put(session, tmp_path)
    kept = context_ids(path)
    fork = written(path, "fork").path
    assert len(context_ids(fork)) == len(kept)
    assert context_ids(fork)[-1] == answer
    assert all(node["uuid"] for node in lines_of_file(fork)[:-1])


@pytest.mark.parametrize("last", ["attachment", "command"])
def test_an_older_client_would_not_send_what_nothing_said_follows(tmp_path: Path, last: str) -> None:
    session = ClaudeSession()
    session.user("p1")
    session.reply("m1")
    session.user("p2")
    if last == "attachment":
        session.attachment("queued_command", prompt="and this")
    else:
        session.node("system", None, subtype="local_command", content="<command-name>/cost</command-name>")
    first, second = session.reply("m2", text("a"), text("b"))
    path = put(session, tmp_path)
    before = snapshot(path.parent)
    with pytest.raises(BadInput, match=r"every message after line 4 of .* Keep one of these messages"):
        written(path, "fork", Target(first), Target(second), generation=OLDER)
    assert snapshot(path.parent) == before
    written(path, "fork", Target(first), generation=OLDER)
    written(path, "fork", Target(first), Target(second))
