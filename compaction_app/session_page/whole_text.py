"""One text of a session in full: of an entry, or of one of its blocks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compaction_app.entries.branches import branch_state
from compaction_app.entries.text import ShownText, beginning, calls_of, kind_of, languages_of, source_of_text, whole
from compaction_app.entries.view import EntryPicture, pictures_of, shown_pictures
from compaction_app.rendering.pictures import Picture
from sessions_app.document.document import indexed_texts
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput
from sessions_app.storage.files import opened, pread

WHOLE_CHARACTERS: Final = 400_000
"""Characters of one text that are shown; the page states the number of the others."""


@dataclass(frozen=True, slots=True)
class WholeText:
    """One text in full, up to WHOLE_CHARACTERS; `kind` as in `EntryView`."""

    entry_id: str
    block: int | None
    kind: str
    shown: ShownText
    left_out: int
    call: tuple[str, str] | None = None
    """A tool's name and its arguments in short."""
    pictures: Sequence[EntryPicture] = ()
    companion: str = ""
    """The name of the file in which the agent keeps the whole output, if the text is only its beginning."""


def whole_text(
    session: Session,
    entry_id: str,
    block: int | None,
    *,
    as_recorded: bool = False,
    is_beginning: bool = False,
) -> WholeText:
    """The text of an entry or a block, or its beginning as on the page of its session.

    Raises BadInput `unknown_entry` and `unknown_block`.
    """
    state = branch_state(session)
    entry = state.tree.entry(entry_id)
    calls = calls_of(state, [entry])
    texts = indexed_texts(session, [entry, *calls])
    own = texts[entry_id]
    if block is not None and block >= len(own.blocks):
        raise BadInput("unknown_block", f"Entry {entry_id} has no block {block}.")
    text = own.block(block) if block is not None else own.joined(entry.blocks)
    found = next((one for one in entry.blocks or () if one.index == block), None)
    kind = kind_of(entry, found)
    companion = session.agent.store.companion_of(session.real_path(), text) if kind == "out" else None
    if companion is not None:
        text = _text_of_file(companion)
    source, call = source_of_text(entry, found, text[:WHOLE_CHARACTERS], session.cwd, languages_of(calls, texts))
    show = beginning if is_beginning else whole
    return WholeText(
        entry_id,
        block,
        kind,
        show(source, as_recorded=as_recorded),
        0 if is_beginning else max(0, len(text) - WHOLE_CHARACTERS),
        call,
        [] if as_recorded else shown_pictures(session, entry, found, text),
        companion.name if companion is not None else "",
    )


def whole_picture(session: Session, entry_id: str, block: int | None, number: int) -> Picture | None:
    """One picture of an entry or a block; None if there is none. Raises BadInput `unknown_entry`."""
    entry = branch_state(session).tree.entry(entry_id)
    found = next((one for one in entry.blocks or () if one.index == block), None)
    pictures = pictures_of(session, entry, found) if (found is None) == (block is None) else []
    return pictures[number] if number < len(pictures) else None


def _text_of_file(path: Path) -> str:
    """The text of a file, of which at most four bytes for each shown character are read."""
    with opened(path, os.O_RDONLY, "It was not read.") as fd:
        return pread(fd, 0, 4 * WHOLE_CHARACTERS).decode("utf-8", "replace")
