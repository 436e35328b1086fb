"""Copies beside a session that its agents open, indexed once they are written. The session itself is not changed.

A migrated copy has version 3, beside a session of version 1 or 2 or one without a header. A repaired copy has no
damage; the bytes that it lost are in another file.
"""

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from sessions_app.agents.registry import agent_at
from sessions_app.disk.files import SESSION_SUFFIX, SessionReader
from sessions_app.models import Session
from sessions_app.sessionlog.diagnosis import Diagnosis
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.repair_pieces import RepairAccount
from sessions_app.sessionlog.session import Header
from sessions_app.storage.backups import create_beside
from sessions_app.storage.repair import write_repaired

from .index_store import remember_own_write
from .indexer import index_file


def copy_path(path: Path) -> Path:
    """The path of the version 3 copy of a session."""
    return path.with_name(f"{path.name.removesuffix(SESSION_SUFFIX)}.v3{SESSION_SUFFIX}")


def write_version_3(path: Path) -> Session:
    """Write the copy and index it; returns its row. A session of any version without a header is given one.

    Raises BadInput `is_current` and `not_a_session`, and the errors of `create_beside` if the file exists already.
    """
    copy = copy_path(path)
    with SessionReader(path) as reader:
        lines = agent_at(path).format.migrate(split_lines(reader.chunks(0)), str(path), new_header(path))
        size = create_beside(copy, lines, reader.stat())
    session = index_file(copy)
    remember_own_write(copy, size)
    return session


def new_header(path: Path) -> Header:
    """A header for a copy of the session at a path, if that has none. The working directory is unknown then."""
    made_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    version = agent_at(path).format.current_version
    return Header(str(uuid.uuid4()), version, cwd="", timestamp=made_at, parent_session="")


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
