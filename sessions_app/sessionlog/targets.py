"""What a deletion names: an entry, or one of its content blocks."""

from __future__ import annotations

from typing import Any, NamedTuple


class Target(NamedTuple):
    """An entry, or one content block of it where `block_index` is given."""

    entry_id: str
    block_index: int | None = None

    def __str__(self) -> str:
        if self.block_index is None:
            return f"entry {self.entry_id}"
        return f"block {self.block_index} of entry {self.entry_id}"

    def to_json(self) -> dict[str, Any]:
        """The target as a request for its deletion names it."""
        if self.block_index is None:
            return {"kind": "entry", "entryId": self.entry_id}
        return {"kind": "content_block", "entryId": self.entry_id, "blockIndex": self.block_index}
