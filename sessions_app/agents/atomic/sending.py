"""What Atomic changes in a context before it sends the messages."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sessions_app.agents.pi.sending import SENDING as PI_SENDING

SENDING_0_8: Final = PI_SENDING
"""From 0.9.3 on, Atomic drops stray results as well; a session does not show that it was continued with 0.8."""
SENDING_0_9: Final = replace(PI_SENDING, drops_stray_results=True)
