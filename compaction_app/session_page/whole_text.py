"""One text of a session in full: of an entry, or of one of its blocks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compaction_app.display.branches import branch_state
from compaction_app.display.entry_items import kind_of
from compaction_app.display.entry_texts import texts_of
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput
from sessions_app.storage.files import opened, pread

WHOLE_CHARACTERS: Final = 400_000
"""Characters of one text that are shown; the page says how many more there are."""


@dataclass(frozen=True, slots=True)
class WholeText:
    """One text in full, up to WHOLE_CHARACTERS; `kind` as in `EntryItem`."""

    entry_id: str
    block: int | None
    kind: str
    text: str
    left_out: int
    companion: str = ""
    """The name of the file in which the agent keeps the whole output, if the text is only its beginning."""


def whole_text(session: Session, entry_id: str, block: int | None) -> WholeText:
    """The text of an entry or a block. Raises BadInput `unknown_entry` and `unknown_block`."""
    entry = branch_state(session).tree.entry(entry_id)
    texts = texts_of(session, [entry])[entry_id]
    if block is not None and block >= len(texts.blocks):
        raise BadInput("unknown_block", f"Entry {entry_id} has no block {block}.")
    text = texts.block(block) if block is not None else texts.joined(entry.blocks)
    kind = kind_of(entry, next((one for one in entry.blocks or () if one.index == block), None))
    companion = session.agent.companion_of(session.real_path(), text) if kind == "out" else None
    if companion is not None:
        text = _text_of_file(companion)
    left_out = max(0, len(text) - WHOLE_CHARACTERS)
    name = companion.name if companion is not None else ""
    return WholeText(entry_id, block, kind, text[:WHOLE_CHARACTERS], left_out, name)


def _text_of_file(path: Path) -> str:
    """The text of a file, of which at most four bytes for each character that is shown are read."""
    with opened(path, os.O_RDONLY, "It was not read.") as fd:
        return pread(fd, 0, 4 * WHOLE_CHARACTERS).decode("utf-8", "replace")
