"""EDGE: files and directories opened without following a symbolic link in any part of their path.

A path is resolved once, on input: a command-line argument, a configured root, a name below a root (see
`discovery.resolve_inside`). After that it means one place. Anyone who can write below a root can replace a file or a
directory above it by a link at any moment; an open that followed the link would read a file outside.

Paths are absolute. Each function raises OSError with the whole path: ELOOP or ENOTDIR if a part of it is a link.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "darwin":

    def _open_directory(path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW_ANY)

else:
    # O_PATH does not need the right to read a directory, only the right to search it.
    _PASSED = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

    def _open_directory(path: Path) -> int:
        root, *names = path.parts
        above = os.open(root, _PASSED)
        for name in names:
            try:
                below = os.open(name, _PASSED, dir_fd=above)
            finally:
                os.close(above)
            above = below
        return above


@contextmanager
def _directory_of(path: Path) -> Iterator[int]:
    """A descriptor of the directory of `path`; an OSError inside the block names the whole path."""
    if not path.is_absolute():
        raise ValueError(f"{path} was not resolved before it was opened")
    try:
        directory = _open_directory(path.parent)
        try:
            yield directory
        finally:
            os.close(directory)
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, os.fspath(path)) from None


def open_file(path: Path, flags: int) -> int:
    """A descriptor of the file at `path`, opened with `flags` and not inherited by other programs."""
    with _directory_of(path) as directory:
        return os.open(path.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)


def stat_file(path: Path) -> os.stat_result:
    """The system's information about `path`, which may itself be a link."""
    with _directory_of(path) as directory:
        return os.stat(path.name, dir_fd=directory, follow_symlinks=False)


@contextmanager
def scan_directory(path: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """The entries of a directory, as from `os.scandir`, valid inside the block."""
    descriptor = open_file(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)
