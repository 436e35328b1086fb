"""The hash chain of the audit log: each entry's hash covers its content and the hash of the entry before it.

    NO_ENTRY ─▶ entry 1 ─▶ entry 2 ─▶ … ─▶ entry N        head: N and the hash of entry N, kept in another place

An entry that was changed, removed, inserted or moved breaks the chain from its position on. Removal of the last entries
leaves a chain that is intact but shorter than its head. Whoever can write to both places can make a new chain.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from sessions_app.sessionlog.jsjson import canonical

from .states import WordedEnum

NO_ENTRY: Final = "0" * 64
"""Replaces the hash of the previous entry for the first one."""


class ChainLink(NamedTuple):
    """One entry: its content, the recorded hash of the previous entry, and its own hash."""

    content: Mapping[str, Any]
    previous: str
    sha256: str


class ChainHead(msgspec.Struct, frozen=True):
    """The end of a chain: the number of its entries, and the hash of the last one."""

    count: int
    sha256: str


EMPTY_CHAIN: Final = ChainHead(0, NO_ENTRY)


class BreakKind(WordedEnum):
    """How a chain is broken: its sentence is the finding and its meaning."""

    CHANGED = "changed", "The entry does not match its own hash: it was changed after it was written."
    DETACHED = (
        "detached",
        "The entry does not follow the one before it: an entry was deleted, inserted or moved here.",
    )
    MISSING = "missing", "The log ends before this entry, but its head names it: the last entries were deleted."
    REPLACED = (
        "replaced",
        "The entry is not the one that the head names: the log was replaced from an earlier entry on.",
    )
    NO_HEAD = (
        "no_head",
        "The entries follow each other, but the head of the log is missing or cannot be read: whether the last entries "
        "were deleted cannot be said.",
    )


class ChainBreak(NamedTuple):
    """The first position at which a chain is broken, counted from 1."""

    position: int
    kind: BreakKind


def link_hash(content: Mapping[str, Any], previous: str) -> str:
    """The hash of an entry: the SHA-256 of its content and the previous hash, as canonical JSON."""
    return hashlib.sha256(canonical({"content": content, "previous": previous}).encode()).hexdigest()


def find_break(links: Iterable[ChainLink], head: ChainHead | None) -> ChainBreak | None:
    """The first break of a chain, or None. `head` is None if there is none; an empty chain needs no head."""
    last = NO_ENTRY
    position = 0
    for position, link in enumerate(links, 1):
        if link.previous != last:
            return ChainBreak(position, BreakKind.DETACHED)
        if link.sha256 != link_hash(link.content, link.previous):
            return ChainBreak(position, BreakKind.CHANGED)
        if head is not None and head.count == position and head.sha256 != link.sha256:
            return ChainBreak(position, BreakKind.REPLACED)
        last = link.sha256
    if head is None:
        return ChainBreak(position, BreakKind.NO_HEAD) if position else None
    return ChainBreak(position + 1, BreakKind.MISSING) if head.count > position else None
