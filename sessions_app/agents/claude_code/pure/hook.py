"""PURE: the hook that Claude Code calls before it compacts.

| answer                       | the client                                                                       |
|------------------------------|----------------------------------------------------------------------------------|
| exit code 0, nothing printed | compacts                                                                         |
| exit code 0, something       | compacts, and adds what was printed to the instructions for the summary          |
| exit code 2                  | does not compact, and shows the command and standard error                       |
| any other exit code          | compacts                                                                         |
"""

from __future__ import annotations

from typing import Final

from sessions_app.agents.pure.hooks import HookReply, HookRequest, HookStep, hook_fields, hook_request

BLOCKED: Final = 2


class ClaudeCodeHook:
    def review_request(self, sent: bytes) -> HookRequest:
        fields = hook_fields(sent)
        instructions = {"instructions": fields.get("custom_instructions")}
        return hook_request(fields.get("transcript_path"), fields.get("trigger"), instructions)

    def reply(self, step: HookStep, message: str) -> HookReply:
        """The client knows no other way to stop than not to compact."""
        return HookReply(0 if step is HookStep.COMPACT else BLOCKED, errors=message)
