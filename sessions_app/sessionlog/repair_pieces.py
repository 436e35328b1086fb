"""A repaired copy of a session as pieces, and the account of where each original byte is.

A repair reads the original once, in order, and gives each byte one of two fates: it is kept in the copy, or it is lost
and goes into the file of lost bytes. Bytes that the original does not have are inserted into the copy. So:

    copy            = the kept and the inserted pieces, in order
    lost bytes      = the lost pieces, in order
    original        = the kept and the lost pieces, in order

A changed value is a lost piece and an inserted one. Each line of the copy is one record with its newline; a blank line
is not a record, and is lost.
"""

from enum import StrEnum
from typing import Final, NamedTuple

PREVIEW: Final = 200
"""The number of lost bytes that a change shows."""


class Fate(StrEnum):
    """The fate of a piece of the original."""

    KEPT = "kept"
    LOST = "lost"
    INSERTED = "inserted"


class RepairPiece(NamedTuple):
    """Some bytes of a repair."""

    fate: Fate
    number: int
    """The line of the original, from 1."""
    offset: int
    """Its position in the original; of an inserted piece, that of the original byte after it."""
    raw: bytes
    reason: str = ""
    """Why it is lost or inserted."""


class RepairChange(NamedTuple):
    """Bytes that only the copy has, or that only the original has: neighbouring pieces of one fate and reason."""

    fate: Fate
    number: int
    offset: int
    """Its position in the original."""
    at: int
    """For inserted bytes, their position in the copy; for lost ones, that in the file of lost bytes."""
    length: int
    preview: bytes
    """All inserted bytes, or the first PREVIEW lost ones."""
    reason: str

    @property
    def text(self) -> str:
        """The preview; bytes that are not UTF-8 are escaped."""
        return self.preview.decode(errors="backslashreplace")

    @property
    def is_loss(self) -> bool:
        return self.fate is Fate.LOST


class RepairAccount:
    """The account of a repair: add every piece, in order.

    Everything between the changes is the same in the copy and the original.
    """

    def __init__(self) -> None:
        self.original_size = self.copy_size = self.lost_size = 0
        self.changes: list[RepairChange] = []

    def add(self, piece: RepairPiece) -> None:
        """Add the next piece. Raises ValueError if it does not follow the last one in the original."""
        if piece.offset != self.original_size:
            raise ValueError(f"piece at byte {piece.offset}, expected at {self.original_size}")
        size = len(piece.raw)
        if piece.fate is not Fate.KEPT:
            self._change(piece)
        if piece.fate is not Fate.INSERTED:
            self.original_size += size
        if piece.fate is Fate.LOST:
            self.lost_size += size
        else:
            self.copy_size += size

    @property
    def inserted_size(self) -> int:
        """The number of bytes that the original does not have."""
        return self.copy_size + self.lost_size - self.original_size

    def _change(self, piece: RepairPiece) -> None:
        lost = piece.fate is Fate.LOST
        at = self.lost_size if lost else self.copy_size
        last = self.changes[-1] if self.changes else None
        end = (last.fate, last.reason, last.offset + last.length) if last is not None else None
        if last is not None and lost and end == (piece.fate, piece.reason, piece.offset):
            preview = last.preview + piece.raw[: PREVIEW - len(last.preview)]
            self.changes[-1] = last._replace(length=last.length + len(piece.raw), preview=preview)
            return
        preview = piece.raw[:PREVIEW] if lost else piece.raw
        change = RepairChange(piece.fate, piece.number, piece.offset, at, len(piece.raw), preview, piece.reason)
        self.changes.append(change)
