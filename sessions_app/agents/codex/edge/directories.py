"""EDGE: Codex's directories, and the rollout with a given id in them.

    <home>/sessions/2026/11/22/rollout-<time>-<thread>.jsonl              by the local date on which it was begun
    <home>/sessions/2026/11/22/rollout-<time>-<thread>_<segment>.jsonl
    <home>/archived_sessions/rollout-<time>-<thread>.jsonl

A rollout is found by the id at the end of its name, as Codex finds it: wherever it is below these directories. An id
begins with the time at which it was given, so that the directory of that day is looked at first, and few others are. A
directory is listed again only when it has changed. No link is followed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from sessions_app.storage.nofollow import scan_directory, stat_file

SESSIONS: Final = "sessions"
ARCHIVED: Final = "archived_sessions"
COMPRESSED_SUFFIX: Final = ".jsonl.zst"
"""Codex can compress rollouts that are not in use. It decompresses one again when it resumes it."""
MAX_DEPTH: Final = 4
"""The depth of the dated directories: sessions/2026/11/22."""
MAX_DIRECTORIES: Final = 2_000
"""A rollout is not looked for in more directories than these."""
SETTLED_NS: Final = 2_000_000_000
"""A directory that changed less than this ago may change again without another time of change."""
_NAME: Final = re.compile(r"rollout-.+[-_]([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl\Z")
_DAY: Final = timedelta(days=1)


class _Listing(NamedTuple):
    """What is in a directory."""

    rollouts: Mapping[str, str]
    """The names of rollouts by the ids at their ends."""
    directories: tuple[str, ...]
    """The latest dates first."""


_NOTHING: Final = _Listing({}, ())


def codex_home(path: Path) -> Path | None:
    """The directory of Codex's files in which a session is; None outside of one."""
    return next((parent.parent for parent in path.parents if parent.name in (SESSIONS, ARCHIVED)), None)


def find_rollout(path: Path, rollout_id: str) -> Path | None:
    """The rollout with this id at the end of its name: beside `path`, or elsewhere among Codex's sessions."""
    for directory in islice(_directories(path, rollout_id), MAX_DIRECTORIES):
        name = _listing(directory).rollouts.get(rollout_id)
        if name is not None:
            return directory / name
    return None


def _directories(path: Path, rollout_id: str) -> Iterator[Path]:
    """The directories in which a rollout may be, the likeliest first."""
    yield path.parent
    home = codex_home(path)
    if home is None:
        return
    for day in _days_of(rollout_id):
        yield home / SESSIONS / f"{day:%Y/%m/%d}"
    yield home / ARCHIVED
    yield from _below(home / SESSIONS, MAX_DEPTH)
    yield from _below(home / ARCHIVED, MAX_DEPTH)


def _below(directory: Path, depth: int) -> Iterator[Path]:
    yield directory
    for name in _listing(directory).directories if depth > 0 else ():
        yield from _below(directory / name, depth - 1)


def _days_of(rollout_id: str) -> tuple[date, ...]:
    """The local dates on which an id may have been given, as a uuid of version 7 has its time at the beginning; none if
    it is another one."""
    if rollout_id[14:15] != "7":
        return ()
    milliseconds = int(rollout_id[:8] + rollout_id[9:13], 16)
    try:
        day = (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)).date()
        return day, day - _DAY, day + _DAY
    except OverflowError:
        return ()


def _listing(directory: Path) -> _Listing:
    try:
        state = stat_file(directory)
        if time.time_ns() - state.st_mtime_ns < SETTLED_NS:
            return _list(directory)
        return _settled_listing(directory, state.st_dev, state.st_ino, state.st_mtime_ns)
    except OSError:
        return _NOTHING  # a directory that is gone or cannot be read has no rollout


@lru_cache(maxsize=MAX_DIRECTORIES)
def _settled_listing(directory: Path, device: int, inode: int, changed_ns: int) -> _Listing:
    """What is in a directory in this state."""
    del device, inode, changed_ns
    return _list(directory)


def _list(directory: Path) -> _Listing:
    rollouts: dict[str, str] = {}
    directories: list[str] = []
    with scan_directory(directory) as entries:
        for entry in sorted(entries, key=_name_of):
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            elif entry.is_file(follow_symlinks=False) and (found := _NAME.match(entry.name)):
                rollouts.setdefault(found[1], entry.name)
    return _Listing(rollouts, tuple(reversed(directories)))


def _name_of(entry: os.DirEntry[str]) -> str:
    return entry.name
