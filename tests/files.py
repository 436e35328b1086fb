"""Session files: written, backdated, and compared."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sessions_app.disk.files import FileState, Fingerprint, SessionReader, file_state


def backdate(path: Path, hours: float = 1) -> Path:
    """The file, last modified some time ago, so that no agent seems to have it open."""
    then = time.time() - 3600 * hours
    os.utime(path, (then, then))
    return path


def place(path: Path, content: bytes) -> Path:
    """A file with this content, last modified an hour ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return backdate(path)


def append_as_agent(path: Path, content: bytes) -> None:
    """Open a session, append and close it without a lock, as an agent does."""
    with path.open("ab") as file:
        file.write(content)


def last_line(path: Path) -> Any:
    """The last line of a session, which has its newline, as JSON."""
    return json.loads(path.read_bytes().split(b"\n")[-2])


def snapshot(directory: Path) -> dict[str, bytes | str]:
    """Everything below a directory: the bytes of files, the targets of links."""
    found: dict[str, bytes | str] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """A file, or all that is in a directory, is as it was when the block ends."""
    look = snapshot if path.is_dir() else Path.read_bytes
    before = look(path)
    yield
    assert look(path) == before


def fingerprint_of(path: Path) -> Fingerprint:
    """The fingerprint of all complete lines of `path`."""
    with SessionReader(path) as reader:
        content = b"".join(reader.chunks(0))
        return reader.fingerprint(content.rfind(b"\n") + 1, None)


def state_of(path: Path) -> FileState:
    """The state of `path`, which must exist."""
    state = file_state(path)
    assert state is not None, f"{path} is gone"
    return state


def never_complete(_: bytes) -> bool:
    """For sessions whose last line has its newline: it must not be called."""
    return False
