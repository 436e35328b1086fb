"""What an agent changes in a context before it sends the messages to a provider."""

from __future__ import annotations

from typing import Final

import msgspec


class Sending(msgspec.Struct, frozen=True):
    """The repairs of an agent. Without any, the messages of the context are sent as they are."""

    unsent_stop_reasons: frozenset[str] = frozenset()
    """Assistant messages that stopped for one of these reasons are left out; results of their calls are not."""
    fills_unanswered_calls: bool = False
    """A call without a result gets one, before the next message that is not a result."""
    drops_stray_results: bool = False
    """A result that answers no call of the assistant message directly before it, or a second time, is left out."""
    drops_repeated_calls: bool = False
    """A call with the id of an earlier one is left out; a result answers the earlier one."""
    drops_empty_messages: bool = False
    """Messages of users and assistants without content are left out."""
    pairs_anywhere: bool = False
    """A result may follow its call at any distance, and the conversation may begin with anyone."""


NO_REPAIRS: Final = Sending()
"""An agent that sends the messages of the context as they are."""
