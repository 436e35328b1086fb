"""What Claude Code changes in a context before it sends the messages (rules 8 and 9 of `sent`)."""

from __future__ import annotations

from typing import Final

from sessions_app.sessionlog.sending import Sending

SENDING: Final = Sending(
    fills_unanswered_calls=True, drops_empty_messages=True, drops_stray_results=True, drops_repeated_calls=True
)
