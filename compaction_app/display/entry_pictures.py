"""The pictures of entries: their sizes for a page, their bytes for their own addresses."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from compaction_app.rendering.pictures import Picture, pictures_in
from sessions_app.models import Session
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import Block, BlockType, Entry
from sessions_app.storage.session_loader import read_again

LINE_BYTES: Final = 32_000_000
"""Longer lines are not searched for pictures."""
_NAMED: Final = "image/"
"""What agents write into a text in the place of a picture that belongs to it."""


@dataclass(frozen=True, slots=True)
class EntryPicture:
    """One picture of an entry or a block, without its bytes."""

    entry_id: str
    block: int | None
    number: int
    digest: str
    """Of its bytes: the address of another picture is another one."""
    width: int
    height: int
    size: int


def pictures_of(session: Session, entry: Entry, block: Block | None) -> list[Picture]:
    """The pictures of an entry, or of one block of it. Raises Conflict if the file was rewritten."""
    if not entry.is_message or entry.length > LINE_BYTES:
        return []
    agent = session.agent
    with agent.open(session.real_path()) as reader:
        read_again(agent, reader, entry, session.version)
        line = reader.read_at(entry.offset, entry.length)
    message = Message(entry, entry.role, entry.blocks if block is None else (block,), 0)
    found = list(pictures_in(dict(agent.message_json(message, line, None))))
    if block is None or len(found) < 2:
        return found
    # A message that cannot be divided into its blocks.
    images = [one.index for one in entry.blocks or () if one.type == BlockType.IMAGE]
    place = images.index(block.index) if block.index in images else len(found)
    return found[place : place + 1]


def shown_pictures(session: Session, entry: Entry, block: Block | None, text: str) -> list[EntryPicture]:
    """The pictures that a page shows: of a block that is an image, or of an entry whose text names images."""
    if block.type != BlockType.IMAGE if block is not None else _NAMED not in text:
        return []
    return [
        EntryPicture(
            entry.id,
            block.index if block is not None else None,
            number,
            digest_of(picture),
            picture.width,
            picture.height,
            len(picture.data),
        )
        for number, picture in enumerate(pictures_of(session, entry, block))
    ]


def digest_of(picture: Picture) -> str:
    return hashlib.sha256(picture.data).hexdigest()[:16]
