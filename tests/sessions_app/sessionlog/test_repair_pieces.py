"""The account of a repair: where each byte of the original is."""

import pytest

from sessions_app.sessionlog.repair_pieces import PREVIEW, Fate, RepairAccount, RepairChange, RepairPiece


def account_of(*pieces: RepairPiece) -> RepairAccount:
    account = RepairAccount()
    for piece in pieces:
        account.add(piece)
    return account


def test_positions_are_those_in_the_file_that_has_the_bytes():
    account = account_of(
        RepairPiece(Fate.LOST, 1, 0, b"xy", "why"),
        RepairPiece(Fate.KEPT, 1, 2, b"abc"),
        RepairPiece(Fate.INSERTED, 1, 5, b"\n", "end"),
        RepairPiece(Fate.LOST, 2, 5, b"z", "why"),
    )
    assert account.changes == [
        RepairChange(Fate.LOST, 1, 0, 0, 2, b"xy", "why"),
        RepairChange(Fate.INSERTED, 1, 5, 3, 1, b"\n", "end"),
        RepairChange(Fate.LOST, 2, 5, 2, 1, b"z", "why"),
    ]
    assert (account.original_size, account.copy_size) == (6, 4)
    assert (account.lost_size, account.inserted_size) == (3, 1)


def test_neighbouring_lost_bytes_are_one_change_with_the_first_bytes_shown_and_a_gap_is_refused():
    account = account_of(
        RepairPiece(Fate.LOST, 1, 0, b"a" * (PREVIEW - 1), "why"),
        RepairPiece(Fate.LOST, 2, PREVIEW - 1, b"bb", "why"),
        RepairPiece(Fate.LOST, 3, PREVIEW + 1, b"c", "another reason"),
    )
    assert [(one.number, one.length) for one in account.changes] == [(1, PREVIEW + 1), (3, 1)]
    assert account.changes[0].preview == b"a" * (PREVIEW - 1) + b"b"
    with pytest.raises(ValueError, match="piece at byte 3, expected at 2"):
        account_of(RepairPiece(Fate.KEPT, 1, 0, b"ab"), RepairPiece(Fate.KEPT, 1, 3, b"c"))
