"""EDGE: the running clients of Claude Code that have a session open, as they register themselves.

    <configuration>/projects/<project>/<session id>.jsonl     a session
    <configuration>/sessions/<pid>.json                       a client, until it ends: its session, and when it started

A client that was killed leaves its file, and its process id may belong to another process later; so the recorded start
is compared with the process, if the system shows that. The files are untrusted: no link in their path is followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sessions_app.agents.json_file import read_json_file
from sessions_app.storage.nofollow import scan_directory

PROJECTS: Final = "projects"
REGISTER: Final = "sessions"
MAX_PID: Final = 2**31 - 1
_PROCESSES: Final = Path("/proc")
_START: Final = 19
"""The place of the start time among the fields of a process after its name."""


def clients_with(session: Path) -> tuple[int, ...]:
    """The ids of the running processes that have a session open, given its real path. Empty proves nothing: clients
    before 2.1.330 may not register, and a session may be open on another computer."""
    directory = session.parent.parent
    if directory.name != PROJECTS:
        return ()
    register = directory.with_name(REGISTER)
    return tuple(sorted(pid for pid in _registered(register) if _has_open(register, pid, session.stem)))


def _registered(register: Path) -> Iterator[int]:
    """The process ids that files are named after."""
    try:
        with scan_directory(register) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError:  # there is none, or it cannot be read: nothing is known
        return
    for name in names:
        stem, _, ending = name.partition(".")
        if ending == "json" and stem.isascii() and stem.isdigit() and 0 < int(stem) <= MAX_PID:
            yield int(stem)


def _has_open(register: Path, pid: int, session_id: str) -> bool:
    found = read_json_file(register / f"{pid}.json", inside=register)
    return found is not None and found.values.get("sessionId") == session_id and _runs(pid, found.values)


def _runs(pid: int, recorded: Mapping[str, Any]) -> bool:
    """Whether this process exists and is not a later one with the same id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it exists, and belongs to another user
    start = _start_of(pid)
    return start is None or recorded.get("procStart") in (None, start)


def _start_of(pid: int) -> str | None:
    """When a process started, in the system's ticks since it booted; None if the system does not show it."""
    try:
        fields = (_PROCESSES / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    return fields.rpartition(")")[2].split()[_START]
