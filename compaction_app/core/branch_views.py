"""PURE: the views of a branch: the active context, the full history, and the removed content.

view      messages
sees      those of the active context, with their remaining blocks
all       every entry, as recorded
removed   the entries that are not completely in the context, with the missing blocks
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Block, Entry

VIEWS: Final = ("sees", "all", "removed")


def is_removed(entry: Entry, message: Message | None) -> bool:
    """Whether a recorded message, or a part of it, is missing from the context: `message` is its remaining part."""
    if message is None:
        return entry.is_message and not entry.empty
    return message.blocks is not entry.blocks and (
        message.edit is not None or len(message.blocks or ()) < len(entry.blocks or ())
    )


def messages_in(view: str, branch: Sequence[Entry], context: ActiveContext) -> list[Message]:
    """The messages of one of VIEWS, in order."""
    if view == "all":
        return [Message(entry, entry.role, entry.blocks, entry.tokens) for entry in branch]
    kept = {message.entry.id: message for message in context.messages}
    if view == "sees":
        return list(kept.values())
    removed = [entry for entry in branch if is_removed(entry, kept.get(entry.id))]
    return [Message(entry, entry.role, _removed_blocks(entry, kept.get(entry.id)), entry.tokens) for entry in removed]


def _removed_blocks(entry: Entry, message: Message | None) -> tuple[Block, ...] | None:
    """The recorded blocks that the model does not see: all of them, if an edit replaced the content."""
    if entry.blocks is None or message is None or message.edit is not None:
        return entry.blocks
    left = {block.index for block in message.blocks or ()}
    return tuple(block for block in entry.blocks if block.index not in left)
