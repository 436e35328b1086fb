"""Addresses of entries and of their texts, below the address of their session.

A plain id is in the path. Any other is in the query: in a path `..` would climb, `a/text` would be the text of `a`, and
an id that ends like a session's file would be taken for one.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

_PLAIN: Final = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,199}")


def entry_address(session: str, entry_id: str) -> str:
    """The address of an entry below the address of its session."""
    if _is_plain(entry_id):
        return f"{session}/entries/{entry_id}"
    return f"{session}?entry={quote(entry_id, safe='')}"


def place_address(session: str, entry_id: str, typed: str) -> str:
    """The address of an entry in which a search found something; the search continues from there."""
    address = entry_address(session, entry_id)
    return f"{address}{'&' if '?' in address else '?'}{urlencode({'q': typed})}"


def text_address(session: str, entry_id: str, block: int | None = None, **more: str) -> str:
    """The address of the whole text of an entry, or of one block of it, below the address of its session.

    `more` has the `form` of the text and the `part`.
    """
    return _below(session, entry_id, "text", {"block": block, **more})


def picture_address(session: str, entry_id: str, block: int | None, number: int, digest: str) -> str:
    """The address of one picture of an entry, or of one block of it, below the address of its session."""
    return _below(session, entry_id, "picture", {"block": block, "number": number, "digest": digest})


def _below(session: str, entry_id: str, name: str, more: Mapping[str, str | int | None]) -> str:
    """The address of something that belongs to an entry."""
    is_plain = _is_plain(entry_id)
    values = {"entry": "" if is_plain else entry_id, **more}
    query = urlencode(
        {name: value for name, value in values.items() if value not in (None, "")}, quote_via=quote, safe=""
    )
    path = f"{session}/entries/{entry_id}/{name}" if is_plain else f"{session}/{name}"
    return f"{path}?{query}" if query else path


def lost_address(session: str, entry_id: str) -> str:
    """The address of the page of a summary's loss, below the address of its session."""
    return f"{session}/lost?entry={quote(entry_id, safe='')}"


def _is_plain(entry_id: str) -> bool:
    return _PLAIN.fullmatch(entry_id) is not None and not entry_id.endswith(".jsonl")
