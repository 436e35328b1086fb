"""The reader of a session: by the user's choice, or by its location, its entries and the installed agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings

from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import NOTHING_APPENDED, agent_of, choose_reader, reading_by
from sessions_app.disk.files import real_path
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.session import ParserState

if TYPE_CHECKING:
    # Commands that only read a session do not load the models.
    from sessions_app.models import Session


def reading_of(
    path: Path,
    entries: Sequence[Entry],
    state: ParserState,
    chosen: str = "",
    own: Mapping[str, str] = NOTHING_APPENDED,
) -> Reading:
    """The reader of the file at `path`, and why, given its entries in file order and the parser's state after them.

    `chosen` is the user's choice for this session or its root: `Session.reader_choice`; `own` is `Session.own_entries`.
    """
    real = real_path(path)
    innermost_first = sorted(settings.REDLINE.roots, key=lambda root: -len(real_path(root.path).parts))
    root = next((one for one in innermost_first if real.is_relative_to(real_path(one.path))), None)
    agent = (root.agent if root is not None else "") or agent_of(real)
    chosen = chosen or (root.reader if root is not None else "")
    return choose_reader(entries, chosen=chosen, agent=agent, own=own, state=state).of_session(state)


def reading_of_session(session: Session, path: Path, entries: Sequence[Entry], state: ParserState) -> Reading:
    """The reader of an indexed session, and why."""
    return reading_of(path, entries, state, session.reader_choice, session.own_entries)


def indexed_reading(session: Session) -> Reading | None:
    """The reading with which a session was indexed; None if it was not read yet."""
    if not session.read_as:
        return None
    return reading_by(session.read_as, "it was indexed so").of_session(session.parser_state)
