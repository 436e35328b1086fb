"""Targets of deletions: an entry, or one of its content blocks. A deletion request has ids only, never text:

    {"kind": "entry", "entryId": "1a2b3c4d"}
    {"kind": "content_block", "entryId": "1a2b3c4d", "blockIndex": 0}

`blockIndex` counts in the content array as recorded, whatever has been deleted from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Target(NamedTuple):
    """An entry, or one of its content blocks if `block_index` is given."""

    entry_id: str
    block_index: int | None = None

    def __str__(self) -> str:
        if self.block_index is None:
            return f"entry {self.entry_id}"
        return f"block {self.block_index} of entry {self.entry_id}"

    def to_json(self) -> dict[str, Any]:
        """The target in the form of a deletion request."""
        if self.block_index is None:
            return {"kind": "entry", "entryId": self.entry_id}
        return {"kind": "content_block", "entryId": self.entry_id, "blockIndex": self.block_index}


def request_of(targets: Iterable[Target]) -> dict[str, Any]:
    """A deletion request for these targets, in this order."""
    return {"deletions": [target.to_json() for target in targets]}


def blocks_by_entry(targets: Iterable[Target]) -> Mapping[str, frozenset[int] | None]:
    """For each entry that targets name: the indexes of the named blocks, or None if it is named as a whole."""
    whole: set[str] = set()
    blocks: dict[str, set[int]] = {}
    for target in targets:
        if target.block_index is None:
            whole.add(target.entry_id)
        else:
            blocks.setdefault(target.entry_id, set()).add(target.block_index)
    partly = {entry_id: frozenset(indexes) for entry_id, indexes in blocks.items() if entry_id not in whole}
    return {**dict.fromkeys(whole), **partly}
