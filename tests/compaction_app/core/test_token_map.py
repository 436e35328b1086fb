"""Promises of the token map: order is kept, area is true, and a frame is on the lines that it marks."""

import re

import pytest

from compaction_app.core.effects import removed_estimate
from compaction_app.core.token_map import CELL, CELLS, GAP, LINE, LINES, Piece, draw, kind_of_piece, pieces_of
from sessions_app.sessionlog.entries import Role, Target
from tests.compaction_app.core.strategies import accepted_deletions, given_often
from tests.factories import assistant, text, thinking, transcript_of, user

STEP = LINE + GAP


def area(path: str) -> int:
    """Cells that the bars of a path cover."""
    return sum(int(width) // CELL for width in re.findall(r"h(\d+)v", path))


def test_each_kind_covers_its_share_in_order_and_nothing_makes_an_empty_map():
    drawn = draw([Piece("user", 250), Piece("read", 700), ("text", 50, False)])
    cells = {kind: area(path) for kind, path in drawn.paths}
    assert sum(cells.values()) == LINES * CELLS
    for kind, share in (("user", 0.25), ("read", 0.7), ("text", 0.05)):
        assert abs(cells[kind] - share * LINES * CELLS) <= 1
    drawn = draw([("read", 500, False), ("user", 500, True)])
    paths = dict(drawn.paths)
    assert paths["read"].startswith("M0 0")
    assert paths["user"].startswith(f"M0 {LINES // 2 * STEP}")
    assert drawn.underlines.startswith(f"M0 {LINES // 2 * STEP + LINE}")
    drawn = draw([])
    assert (drawn.paths, drawn.underlines, drawn.tokens, drawn.frame(0, 0)) == ([], "", 0, (0, 0))


@pytest.mark.parametrize(
    ("tool", "kind"),
    [("Read", "read"), ("exec_command", "bash"), ("MultiEdit", "edit"), ("write", "write"), ("Grep", "other")],
)
def test_the_results_of_every_agents_tools_have_a_kind(tool, kind):
    assert kind_of_piece(Role.TOOL_RESULT, tool) == kind


def test_maps_of_one_scale_can_be_compared():
    pieces = [("user", 250, False), ("read", 250, True)]
    alone, scaled = draw(pieces), draw(pieces, scale=1_000)
    cells = {kind: area(path) for kind, path in scaled.paths}
    assert cells == {kind: area(path) / 2 for kind, path in alone.paths}
    assert scaled.height == LINES // 2 * STEP - GAP
    assert scaled.tokens_a_line == 2 * alone.tokens_a_line - 1
    assert draw(pieces, scale=100) == alone
    assert draw([], scale=100).paths == []


@pytest.mark.parametrize(
    ("before", "tokens", "first", "last"),
    [(0, 6_000, 0, 59), (0, 1, 0, 0), (0, 100, 0, 0), (100, 101, 1, 2), (5_999, 1, 59, 59), (6_000, 0, 59, 59)],
)
def test_a_frame_covers_the_lines_of_its_pieces(before, tokens, first, last):
    top, height = draw([("read", 6_000, False)]).frame(before, tokens)
    assert top == first * STEP
    assert top + height == last * STEP + LINE


@given_often(accepted_deletions())
def test_pieces_add_up_to_what_is_struck_and_to_the_transcript(accepted):
    targets, transcript = accepted.gone, accepted.transcript
    struck = total = 0
    for piece, target in pieces_of(transcript, targets):
        assert piece.tokens >= 0
        total += piece.tokens
        if target in targets or Target(target.entry_id) in targets:
            struck += piece.tokens
    assert struck == removed_estimate(transcript, targets)
    assert total == transcript.tokens


def test_the_blocks_of_an_entry_share_its_tokens():
    blocks = [text("abcde"), text("abcde"), thinking("abcdefgh")]
    transcript = transcript_of(user("Go."), assistant(*blocks), user("More."))
    entry = transcript.entries[1]
    assert (entry.tokens, [block.tokens for block in entry.blocks]) == (5, [2, 2, 2])

    def pieces(*struck: Target) -> list[int]:
        found = pieces_of(transcript, struck)
        return [piece.tokens for piece, target in found if target.entry_id == entry.entry_id]

    assert pieces() == pieces(Target(entry.entry_id)) == [1, 1, 3]
    assert pieces(Target(entry.entry_id, 0)) == [1, 1, 3]
    # What remains, ten letters, is estimated as a whole.
    assert pieces(Target(entry.entry_id, 2)) == [1, 2, 2]
