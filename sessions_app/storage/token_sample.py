"""EDGE: the tokens in the beginning of a branch, counted by a tokenizer, for branches without a usable report.

The tokenizer is tiktoken's o200k_base, with the ranks that bpe-openai contains, so that nothing is downloaded. What is
not text has its estimate, and an image what the model's provider counts for one of its size, if that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from sessions_app.sessionlog.context import SAMPLE, ActiveContext, Rebuild, Tally, model_of
from sessions_app.sessionlog.entries import Entry, Texts, tokens_of
from sessions_app.sessionlog.image_tokens import image_tokens
from sessions_app.sessionlog.measure import InheritedMeasure, Measured
from sessions_app.sessionlog.opaque import Opaque

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
    model = model_of(branch)
    counted = without_text = estimate = 0
    for entry in branch:
        if entry.is_message and not entry.empty:
            text, opaque = _content(entry, read(entry))
            counted += _count(text)
            without_text += sum(_tokens(one, model) for one in opaque)
            estimate += entry.tokens
        if estimate >= SAMPLE:
            break
    return Measured(round(factor_of(model) * counted) + without_text, estimate)


def factor_of(model: tuple[str, str] | None) -> float:
    """The tokens of a model for one of the tokenizer: provider and id, or None if it is not known."""
    return CLAUDE if model is not None and "claude" in model[1].lower() else 1.0


def _content(entry: Entry, texts: Texts) -> tuple[str, Sequence[Opaque]]:
    """The text of an entry without what is not text, and that."""
    blocks = entry.blocks
    if not texts.opaque:
        return texts.joined(blocks), ()
    if blocks is None or texts.whole is not None:
        return _without_labels(texts.whole or "", texts.opaque), texts.opaque
    by_block: dict[int | None, list[Opaque]] = {}
    for one in texts.opaque:
        by_block.setdefault(one.block, []).append(one)
    own = [by_block.get(block.index, []) for block in blocks]
    said = (_without_labels(texts.block(block.index), found) for block, found in zip(blocks, own, strict=True))
    return "\n".join(filter(None, said)), [one for found in own for one in found]


def _without_labels(text: str, opaque: Sequence[Opaque]) -> str:
    for one in filter(None, (one.label for one in opaque)):
        text = text.replace(f"\n{one}" if f"\n{one}" in text else one, "", 1)
    return text


def _tokens(opaque: Opaque, model: tuple[str, str] | None) -> int:
    by_provider = image_tokens(model[1], opaque.size) if model is not None and opaque.size is not None else None
    return tokens_of(opaque.units) if by_provider is None else by_provider


def _count(text: str) -> int:
    pieces = (text[start : start + PIECE] for start in range(0, len(text), PIECE))
    return sum(len(_encoding().encode_ordinary(piece)) for piece in pieces)


@cache
def _encoding() -> Encoding:
    # Loading both takes half a second, and most sessions have a report.
    from bpe_openai.registry import o200k_base
    from tiktoken import Encoding

    return Encoding(**o200k_base())
