"""A fork has what survives of a context, and nothing that describes the old session."""

import re
from pathlib import Path
from typing import Any

import pytest

from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.targets import Target
from tests.claude_sessions import ClaudeSession, answer, call, text, thinking
from tests.files import snapshot

from .sent_messages import OLDER
from .writing import Talk, context_ids, lines_of_file, put, written

CHANGED = re.compile(rb'"(?:parentUuid|sessionId|entrypoint)": ?(?:null|"[^"]*")|"usage": ?\{[^{}]*\}')


@pytest.fixture
def talk(tmp_path):
    return Talk(tmp_path)


def fork_of(talk: Talk, *targets: str) -> tuple[Path, list[dict[str, Any]]]:
    """The fork without these lines, and its lines; the session itself is not touched."""
    path = talk.put()
    before = path.read_bytes()
    fork = written(path, "fork", *map(Target, targets)).path
    assert path.read_bytes() == before
    return fork, lines_of_file(fork)


def test_each_line_follows_the_one_before_it_in_a_session_that_is_named_after_its_file(talk):
    fork, lines = fork_of(talk, talk["c1"], talk["r1"], talk["a1"])
    *nodes, title = lines
    assert [line["uuid"] for line in nodes] == context_ids(fork)
    assert [line["parentUuid"] for line in nodes] == [None, *(line["uuid"] for line in nodes[:-1])]
    assert {line["sessionId"] for line in lines} == {fork.stem}
    assert title["type"] == "custom-title"
    # A headless session becomes one that the client lists.
    assert {line["entrypoint"] for line in nodes} == {"cli"}


def test_what_survives_keeps_every_other_byte(talk):
    session = talk.session
    odd = (
        '{ "type":"user","uuid":"odd", "parentUuid" : "' + str(session.last) + '","n":1.50,"timestamp":'
        '"2026-11-20T10:30:00.000Z","message":{"role":"user" ,"content":"na\\u00efve 🙂 \\ud800"}}'
    )
    session.lines.append(odd.encode())
    fork, _ = fork_of(talk, talk["a1"])
    recorded = [line for line in session.lines if talk["a1"].encode() not in line.split(b'"uuid"')[1]]
    bare = [CHANGED.sub(b"", line) for line in fork.read_bytes().splitlines()[:-1]]
    assert bare[:-1] == [CHANGED.sub(b"", line) for line in recorded[:-1]]
    assert odd.encode().partition(b'"n"')[2] in fork.read_bytes()


def test_no_line_reports_used_tokens(talk):
    talk.session.reply("m1", text("a"), text("b"), input_tokens=180_000, cache_read_input_tokens=9)
    _, lines = fork_of(talk)
    usages = [line["message"]["usage"] for line in lines if line["type"] == "assistant"]
    assert len(usages) > 2
    assert not any(any(usage.values()) for usage in usages)


def test_the_title_says_what_it_is_a_fork_of_or_its_day(talk):
    assert fork_of(talk)[1][-1]["customTitle"] == "Session of 2026-01-01 00:00 (forked with Redline)"
    talk.session.beside(type="custom-title", customTitle="Fix the parser", sessionId="x")
    for name, targets in (("forked", ()), ("curated", (talk["a1"],))):
        talk.directory /= name
        assert fork_of(talk, *targets)[1][-1]["customTitle"] == f"Fix the parser ({name} with Redline)"


def test_what_describes_the_old_session_is_left_out(talk):
    session = talk.session
    session.beside(type="api-request", id="q1", sessionId="x")
    session.beside(type="last-prompt", lastPrompt="p2", leafUuid=talk["a2"])
    session.beside(type="cost-state", totalCostUSD=1)
    session.beside(type="queue-operation", operation="enqueue")
    session.node("progress", None, data={"type": "hook_progress"})
    session.node("system", None, subtype="turn_duration", durationMs=5)
    session.attachment("prompt_snapshot", "the instructions")
    (last,) = session.reply("m9")
    fork, lines = fork_of(talk)
    assert {line["type"] for line in lines} == {"user", "assistant", "attachment", "custom-title"}
    assert context_ids(fork)[-1] == last


def test_attachments_stay_unless_they_are_deleted(talk):
    for targets in ((), (talk["env"],)):
        talk.directory /= "next"
        _, lines = fork_of(talk, *targets)
        assert (talk["env"] in {line.get("uuid") for line in lines}) == (not targets)


def test_a_call_and_its_result_lose_their_blocks_and_keep_their_lines(tmp_path):
    session = ClaudeSession()
    session.user("p1")
    caller = session.assistant("m1", text("s1"), call("c1"), call("c2"))
    results = [answer("c1", "one"), answer("c2", "two"), text("and more")]
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


def test_a_result_can_lose_an_image_and_keep_its_text(tmp_path):
    session = ClaudeSession()
    session.user("p1")
    session.reply("m1", call("c1"))
    block = answer("c1", [text("seen"), {"type": "image", "source": {"type": "base64", "data": "AAAA"}}])
    line = session.node("user", None, message={"role": "user", "content": [block]})
    session.reply("m2")
    path = put(session, tmp_path)
    fork = written(path, "fork", Target(line, 1)).path
    lines = {line.get("uuid"): line for line in lines_of_file(fork)}
    assert lines[line]["message"]["content"] == [{**block, "content": [text("seen")]}]


def test_what_an_earlier_compaction_left_out_is_left_out(talk):
    talk.session.boundary(talk["p2"], talk["a2"])
    later = [talk.session.user("p3"), *talk.session.reply("m4", thinking("t"), text("a"))]
    fork, lines = fork_of(talk, later[0])
    assert context_ids(fork) == [talk["p2"], talk["a2"], later[1], later[2]]
    assert not any(line.get("subtype") == "compact_boundary" for line in lines)


def test_a_line_without_an_id_gets_one(tmp_path):
    said = {"role": "user", "content": "p1"}
    session = ClaudeSession()
    session.beside(type="user", timestamp="2026-11-20T10:00:00.000Z", message=said)
    (reply,) = session.reply("m1")
    path = put(session, tmp_path)
    kept = context_ids(path)
    fork = written(path, "fork").path
    assert len(context_ids(fork)) == len(kept)
    assert context_ids(fork)[-1] == reply
    assert all(node["uuid"] for node in lines_of_file(fork)[:-1])


@pytest.mark.parametrize("last", ["attachment", "command"])
def test_an_older_client_would_not_send_what_nothing_said_follows(tmp_path, last):
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
