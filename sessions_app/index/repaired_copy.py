"""A repaired copy beside a damaged session, with its lost bytes in another file. The session itself is not changed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sessions_app.models import Session
from sessions_app.sessionlog.diagnosis import Diagnosis
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.repair_pieces import RepairAccount
from sessions_app.storage.files import SESSION_SUFFIX
from sessions_app.storage.repair import write_repaired

from .index_store import remember_own_write
from .indexer import index_file
from .migrated_copy import new_header


class RepairedCopy(NamedTuple):
    """The copy, its row in the index, and the account of the original's bytes."""

    path: Path
    lost_path: Path | None
    """The file of lost bytes; None if nothing was lost."""
    account: RepairAccount
    session: Session


def repaired_path(path: Path) -> Path:
    """The path of the repaired copy of a session."""
    return path.with_name(f"{path.name.removesuffix(SESSION_SUFFIX)}.repaired{SESSION_SUFFIX}")


def lost_path(path: Path) -> Path:
    """The path of the bytes of a session that its repaired copy does not have."""
    return path.with_name(f"{path.name.removesuffix(SESSION_SUFFIX)}.repaired.lost")


def write_repaired_copy(path: Path, diagnosis: Diagnosis) -> RepairedCopy:
    """Write the copy of the session at a real path, and index it.

    Raises BadInput `nothing_to_repair`, and the errors of `write_repaired`.
    """
    if not diagnosis.is_repairable:
        raise BadInput("nothing_to_repair", f"{path} has no damage that a copy would be free of. No copy was made.")
    copy = repaired_path(path)
    account = write_repaired(path, copy, lost_path(path), new_header(path))
    session = index_file(copy)
    remember_own_write(copy, account.copy_size)
    return RepairedCopy(copy, lost_path(path) if account.lost_size else None, account, session)
