"""Stretches of a branch in words: the beginning of the first message, or a description of the event."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from compaction_app.models import written_by_redline
from sessions_app.document.document import indexed_texts
from sessions_app.models import Session
from sessions_app.sessionlog.controls import BoundaryControl
from sessions_app.sessionlog.entries import NO_TEXTS, Entry, Texts
from sessions_app.sessionlog.noise import is_noise
from sessions_app.sessionlog.printable import plural
from sessions_app.sessionlog.titles import title_of
from sessions_app.sessionlog.tree_rows import RowKind, Stretch

from .branches import BranchState
from .view import meaning_of, name_of
from .words import author_of, joined_in_short

TITLE: Final = 160
"""Characters of a text that a row shows."""


@dataclass(frozen=True, slots=True)
class RowText:
    """The words of a stretch: a user's text, or a description by Redline."""

    words: str
    is_said: bool = False
    """Whether the user wrote them."""
    author: str = ""


NO_TEXT: Final = RowText("")


def texts_of_stretches(
    session: Session, state: BranchState, stretches: Iterable[Stretch], length: int = TITLE
) -> dict[int, RowText]:
    """The words of stretches, by the position at which each begins. Raises Conflict if the file was rewritten."""
    described = {stretch.start: (stretch.kind, _described(state, stretch)) for stretch in stretches}
    texts = indexed_texts(session, [entry for _, entry in described.values() if entry.has_text])
    agent = session.agent_label or "the agent"
    has_compactions = any(kind is RowKind.COMPACTION for kind, _ in described.values())
    own = written_by_redline(session) if has_compactions else frozenset()
    return {
        start: (
            _compaction(state, entry, "Redline" if entry.id in own else agent, texts.get(entry.id, NO_TEXTS))
            if kind is RowKind.COMPACTION
            else _message(state, kind, entry, texts.get(entry.id, NO_TEXTS), length)
        )
        for start, (kind, entry) in described.items()
    }


def _described(state: BranchState, stretch: Stretch) -> Entry:
    """The entry whose text represents a stretch: for the rest of a turn, its first message."""
    entries = state.tree.entries
    start = entries[stretch.start]
    if stretch.kind is not RowKind.REST:
        return start
    return next((entries[one] for one in stretch.positions if entries[one].is_message), start)


def _message(state: BranchState, kind: RowKind, entry: Entry, texts: Texts, length: int) -> RowText:
    text = joined_in_short(texts, entry.blocks)
    if kind is RowKind.TURN:
        words = _beginning(title_of(text, length + 1), length)
        return RowText(words, author="command") if is_noise(text) else RowText(words, is_said=True)
    if kind is RowKind.SUMMARY:
        return RowText(_beginning(text, length), author="branch summary")
    if entry.is_message:
        author = author_of(entry.role, entry.tool_name, otherwise=entry.type)
        return RowText(_beginning(text, length), author=author)
    if entry.control is None:
        return RowText(name_of(entry))
    note = meaning_of(entry, state.reading.reader, state.tree)
    return RowText(f"{note.words} {note.quoted}".strip(), author=name_of(entry))


def _compaction(state: BranchState, entry: Entry, by: str, texts: Texts) -> RowText:
    reader = state.reading.reader
    if isinstance(entry.control, BoundaryControl) and entry.control.turns is not None:
        turns = entry.control.turns
        return RowText(f"{plural(turns, 'turn')} taken back")
    note = meaning_of(entry, reader, state.tree)
    meaning = f"a summary of {plural(len(texts.whole), 'character')}" if texts.whole else note.words
    return RowText(f"Compaction by {by}: {meaning}{note.tail}")


def _beginning(text: str, length: int) -> str:
    words = " ".join(text[: 4 * length].split())
    return words if len(words) <= length and len(text) <= 4 * length else f"{words[:length]}…"
