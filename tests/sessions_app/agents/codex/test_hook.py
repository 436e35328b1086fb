"""What Codex sends to its hook, and what it understands as an answer."""

import json
from typing import Any

import pytest

from sessions_app.agents.codex.hook import CodexHook
from sessions_app.agents.compaction_hook import HookReply, HookStep

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
    assert HOOK.question(sent()) == (SENT["transcript_path"], "threshold", {"model": "gpt"})
    assert HOOK.question(sent(transcript_path=None, trigger="manual"))[:2] == ("0199", "manual")


@pytest.mark.parametrize("content", [b"", b"null", b"{}", sent(transcript_path=None, session_id=None)])
def test_anything_else_is_refused(content):
    with pytest.raises(ValueError):
        HOOK.question(content)


def test_codex_compacts_without_output_and_stops_with_its_reason():
    assert HOOK.reply(HookStep.COMPACT, "Words.") == HookReply(errors="Words.")
    for step in (HookStep.CONTINUE, HookStep.STOP):
        reply = HOOK.reply(step, "“Words.”")
        assert json.loads(reply.output) == {"continue": False, "stopReason": "“Words.”"}
        assert reply == HookReply(output=reply.output)
        assert reply.output.isascii()
