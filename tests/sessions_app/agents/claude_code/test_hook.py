"""What Claude Code sends to its hook, and what it understands as an answer."""

import json
from typing import Any

import pytest

from sessions_app.agents.claude_code.hook import ClaudeCodeHook
from sessions_app.agents.compaction_hook import HookReply, HookStep

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


def test_the_session_is_named_by_its_path():
    assert HOOK.question(sent()) == (SENT["transcript_path"], "manual", {})
    assert HOOK.question(sent(trigger="auto")).reason == "threshold"


def test_the_instructions_of_the_user_are_passed_on_so_far_as_there_is_room():
    assert HOOK.question(sent(custom_instructions="keep names")).preparation == {"instructions": "keep names"}
    for text in ("😀" * 10_000, "\x01" * 10_000, "\ud800" * 10_000):
        assert len(json.dumps(HOOK.question(sent(custom_instructions=text)).preparation)) <= 4_000
    assert HOOK.question(sent(custom_instructions=None)).preparation == {}


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b'"x"', b"{", b"{}", b"[" * 100_000),
        *(sent(transcript_path=path) for path in (None, "", "/\0", "/\ud800", ["/x"])),
    ],
)
def test_anything_else_is_refused(content):
    with pytest.raises(ValueError):
        HOOK.question(content)


def test_nothing_is_printed_that_would_become_a_part_of_the_summary():
    for step, code in ((HookStep.COMPACT, 0), (HookStep.CONTINUE, 2), (HookStep.STOP, 2)):
        reply = HOOK.reply(step, "Words.")
        assert (reply, reply.output) == (HookReply(code, errors="Words."), "")
