"""Some units of a group with the beginnings of their texts: a spot check of what was approved in bulk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from compaction_app.display.tool_call_text import joined_in_short
from compaction_app.planning.snapshots import read_snapshot_texts, snapshot_of
from sessions_app.sessionlog.entries import Texts
from sessions_app.sessionlog.noise import without_images
from sessions_app.sessionlog.targets import Target

from .units import ReviewAccount, ReviewUnit

LINES: Final = 24
CHARACTERS: Final = 2_000


@dataclass(frozen=True, slots=True)
class UnitSample:
    """One unit with the beginning of its text."""

    unit: ReviewUnit
    text: str
    is_cut: bool


def samples_of(account: ReviewAccount, units: Iterable[ReviewUnit]) -> list[UnitSample]:
    """Units with their texts. Raises Conflict `session_rewritten` and what reading raises."""
    shown = [unit for unit in units if unit.item.position >= 0]
    entries = [account.transcript.entries[unit.item.position] for unit in shown]
    prepared = snapshot_of(account.run).prepared
    texts = read_snapshot_texts(account.run.session.real_path(), prepared, entries)
    found = []
    for unit in shown:
        whole = without_images(_text(account, unit.target, texts[unit.target.entry_id]))
        text = "\n".join(whole[:CHARACTERS].splitlines()[:LINES])
        found.append(UnitSample(unit, text, len(text) < len(whole.rstrip())))
    return found


def _text(account: ReviewAccount, target: Target, texts: Texts) -> str:
    entry = account.transcript.entry(target.entry_id)
    if target.block_index is not None:
        return texts.block(target.block_index)
    return joined_in_short(texts, entry.blocks if entry is not None else None)
