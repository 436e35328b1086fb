"""PURE: the hook that Codex calls before it compacts.

Without output, Codex compacts. With `{"continue": false}` it neither compacts nor sends anything: the turn ends, and
`stopReason` is shown. It knows no third way, so that *continue* and *stop* are the same here.
"""

from __future__ import annotations

import json

from sessions_app.agents.pure.hooks import HookReply, HookRequest, HookStep, hook_fields, hook_request


class CodexHook:
    def review_request(self, sent: bytes) -> HookRequest:
        fields = hook_fields(sent)
        session = fields.get("transcript_path") or fields.get("session_id")
        return hook_request(session, fields.get("trigger"), {"model": fields.get("model")})

    def reply(self, step: HookStep, message: str) -> HookReply:
        if step is HookStep.COMPACT:
            return HookReply(errors=message)
        return HookReply(output=json.dumps({"continue": False, "stopReason": message}))
