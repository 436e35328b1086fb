"""The texts of entries, for pages: read from the file by offset."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sessions_app.models import Session
from sessions_app.sessionlog.entries import NO_TEXTS, Entry, Texts
from sessions_app.storage.files import Fingerprint
from sessions_app.storage.session_loader import read_texts


def texts_of(session: Session, entries: Iterable[Entry]) -> dict[str, Texts]:
    """The texts of entries by id, read from the file. Raises Conflict if the file was rewritten."""
    wanted = list(entries)
    fingerprint = msgspec.convert(session.fingerprint, Fingerprint)
    found = read_texts(session.real_path(), fingerprint, wanted)
    return {entry.id: found.get(entry.id, NO_TEXTS) for entry in wanted}
