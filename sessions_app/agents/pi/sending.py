"""What pi changes in a context before it sends the messages. Results are never left out."""

from __future__ import annotations

from typing import Final

from sessions_app.sessionlog.sending import Sending

SENDING: Final = Sending(
    unsent_stop_reasons=frozenset({"error", "aborted"}),
    fills_unanswered_calls=True,
    drops_empty_messages=True,
)
