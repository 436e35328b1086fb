"""A version 3 copy beside a session of version 1 or 2, or without a header. The session itself stays as it is."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from sessions_app.agents.registry import agent_at
from sessions_app.models import Session
from sessions_app.sessionlog.lines import split_lines
from sessions_app.sessionlog.session import Header
from sessions_app.storage.backups import create_beside
from sessions_app.storage.files import SESSION_SUFFIX, SessionReader

from .index_store import remember_own_write
from .indexer import index_file


class MigratedCopy(NamedTuple):
    """The copy: where it lies, its size in bytes, and its row in the index."""

    path: Path
    size: int
    session: Session


def copy_path(path: Path) -> Path:
    """Where the version 3 copy of a session lies."""
    return path.with_name(f"{path.name.removesuffix(SESSION_SUFFIX)}.v3{SESSION_SUFFIX}")


def write_version_3(path: Path) -> MigratedCopy:
    """Write the copy and index it. A session without a header is given one, of any version.

    Raises BadInput `is_current` and `not_a_session`, and what `create_beside` raises if a file is there already.
    """
    copy = copy_path(path)
    # Where the agent worked is not recorded without a header.
    made_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    agent = agent_at(path)
    header = Header(str(uuid.uuid4()), agent.current_version, cwd="", timestamp=made_at, parent_session="")
    with SessionReader(path) as reader:
        lines = agent.migrate(split_lines(reader.chunks(0)), str(path), header)
        size = create_beside(copy, lines, reader.stat())
    session = index_file(copy)
    remember_own_write(copy, size)
    return MigratedCopy(copy, size, session)
