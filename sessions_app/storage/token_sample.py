"""EDGE: the tokens in the beginning of a branch, counted by a tokenizer, for branches without a usable report.

The tokenizer is o200k_base as bpe-openai contains it, so that nothing is downloaded. Content that is not text counts
with its estimate, and an image with what the model's provider counts for its size, if that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Final

from sessions_app.sessionlog.context import SAMPLE, ActiveContext, Rebuild, Tally, model_of
from sessions_app.sessionlog.entries import Entry, Texts, tokens_of
from sessions_app.sessionlog.image_tokens import image_tokens
from sessions_app.sessionlog.measure import InheritedMeasure, Measured
from sessions_app.sessionlog.opaque import Opaque

CLAUDE: Final = 1.25
"""Claude's tokens for one of o200k_base: 1.21 to 1.25 in sessions that have all texts that Claude received."""


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
        tally.take_sample(branch_sample(branch, read))
    return tally


def branch_sample(branch: Sequence[Entry], read: Callable[[Entry], Texts]) -> Measured:
    """The tokens counted in the first messages of a branch, which have about SAMPLE tokens by their estimate."""
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
    return Measured(round(token_factor(model) * counted) + without_text, estimate)


def token_factor(model: tuple[str, str] | None) -> float:
    """The tokens of a model for one token of the tokenizer. A model is a provider and an id; None if it is unknown."""
    return CLAUDE if model is not None and "claude" in model[1].lower() else 1.0


def _content(entry: Entry, texts: Texts) -> tuple[str, Sequence[Opaque]]:
    """The text of an entry, and separately its content that is not text."""
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
    # Halves of surrogate pairs, as in a text that was cut, are not UTF-8.
    return _counter()(text.encode("utf-8", "replace").decode())


@cache
def _counter() -> Callable[[str], int]:
    # The package decodes all its vocabularies when it is imported, for a second; its compiled part has its own.
    package = find_spec("bpe_openai")
    found = PathFinder.find_spec("_bindings", package.submodule_search_locations if package is not None else ())
    if found is None or found.loader is None:
        raise ModuleNotFoundError("bpe_openai is not installed.")
    compiled = module_from_spec(found)
    found.loader.exec_module(compiled)
    count: Callable[[str], int] = compiled.tokenizer_for_encoding("o200k_base").count
    return count
