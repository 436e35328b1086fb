"""EDGE: the tokens in the beginning of a branch, counted by a tokenizer, for branches without a usable report.

The tokenizer is tiktoken's o200k_base, with the ranks that bpe-openai contains, so that nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from sessions_app.sessionlog.context import SAMPLE, ActiveContext, Rebuild, Tally, model_of
from sessions_app.sessionlog.entries import BlockType, Entry, Texts, tokens_of
from sessions_app.sessionlog.measure import InheritedMeasure, Measured

if TYPE_CHECKING:
    from tiktoken import Encoding

CLAUDE: Final = 1.25
"""Claude's tokens for one of o200k_base: 1.21 to 1.25 where a session has all texts that Claude received."""
PIECE: Final = 50_000
"""Characters that are counted at a time: the tokenizer's pattern fails on very long runs of spaces."""


def tally_of(
    context: ActiveContext,
    branch: Sequence[Entry],
    rebuild: Rebuild,
    inherited: InheritedMeasure | None,
    read: Callable[[Entry], Texts],
) -> Tally:
    """The totals of a context, as `Tally.of` has them; if nothing usable was reported, its measure is counted.

    `read` gives the texts of an entry.
    """
    tally = Tally.of(context, branch, rebuild, inherited)
    if tally.wants_sample:
        tally.take_sample(sample_of(branch, read))
    return tally


def sample_of(branch: Sequence[Entry], read: Callable[[Entry], Texts]) -> Measured:
    """What is counted in the first messages of a branch, about SAMPLE tokens by their estimate."""
    counted = estimate = 0
    for entry in branch:
        if entry.is_message and not entry.empty:
            text, images = _content(entry, read(entry))
            counted += _count(text) + images
            estimate += entry.tokens
        if estimate >= SAMPLE:
            break
    return Measured(round(factor_of(model_of(branch)) * counted), estimate)


def factor_of(model: tuple[str, str] | None) -> float:
    """The tokens of a model for one of the tokenizer: provider and id, or None if it is not known."""
    return CLAUDE if model is not None and "claude" in model[1].lower() else 1.0


def _content(entry: Entry, texts: Texts) -> tuple[str, int]:
    """The text of an entry, and the estimate of its images."""
    blocks = entry.blocks
    if blocks is None or texts.whole is not None:
        return texts.joined(blocks), 0
    shown = tuple(block for block in blocks if block.type != BlockType.IMAGE)
    images = (block for block in blocks if block.type == BlockType.IMAGE)
    return texts.joined(shown), sum(tokens_of(block.units) for block in images)


def _count(text: str) -> int:
    pieces = (text[start : start + PIECE] for start in range(0, len(text), PIECE))
    return sum(len(_encoding().encode_ordinary(piece)) for piece in pieces)


@cache
def _encoding() -> Encoding:
    # Loading both takes half a second, and most sessions have a report.
    from bpe_openai.registry import o200k_base
    from tiktoken import Encoding

    return Encoding(**o200k_base())
