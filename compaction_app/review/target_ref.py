"""References to targets in addresses and forms, and the ids of articles on the page."""

from __future__ import annotations

from urllib.parse import quote, unquote
from zlib import crc32

from sessions_app.sessionlog.targets import Target


def ref_of(target: Target) -> str:
    """A target in an address or a form: the entry's id, quoted, and the block after a colon."""
    name = quote(target.entry_id, safe="")
    return name if target.block_index is None else f"{name}:{target.block_index}"


def target_of(text: str) -> Target | None:
    """The target of a reference; None if it is not one."""
    name, colon, index = text.partition(":")
    if not name or (colon and not (index.isascii() and index.isdigit() and len(index) < 10)):
        return None
    return Target(unquote(name), int(index) if colon else None)


def anchor(position: int, target: Target) -> str:
    """The id of an article on its page: by position, because an entry's id may contain anything."""
    if position < 0:
        checksum = crc32(str(target).encode("utf-8", "surrogatepass"))
        return f"p-x{checksum:08x}"
    return f"p-{position}" if target.block_index is None else f"p-{position}-{target.block_index}"
