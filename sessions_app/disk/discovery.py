"""EDGE: finding the sessions below a root, and the reasons for refusing other files."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from sessions_app.sessionlog.errors import BadInput, Conflict

from .files import BACKUP_SUFFIXES, SESSION_SUFFIX, real_path, reported, scan_directory


class RefusedPath(NamedTuple):
    """A path below a root that is not listed as a session, and the reason."""

    path: Path
    reason: str


class Discovery(NamedTuple):
    """The search results for a root: real paths of sessions, and refused paths as they were found; both sorted."""

    paths: tuple[Path, ...]
    refused: tuple[RefusedPath, ...]
    unlisted: tuple[RefusedPath, ...] = ()
    """The directories among `refused` that cannot be listed."""
    changed_ns: Mapping[Path, int] = MappingProxyType({})
    """The time of the last change, in nanoseconds, of each session that is not a file, as its reader reports it."""
    unread: str = ""
    """A sentence about other content there that Redline cannot read yet; empty if there is none."""


def resolve_inside(root: Path, relative: str) -> Path:
    """The real path of `relative` below `root`; raises BadInput `outside_root` if it leaves the root."""
    try:
        os.fsencode(relative)
        real = real_path(root / relative)
        inside = real.is_relative_to(real_path(root))
    except ValueError:  # NUL, or a character that file names cannot have here
        inside = False
    if not inside:
        message = f"{relative!r} is not inside {root}. Nothing was opened. Use a path below that root."
        raise BadInput("outside_root", message)
    return real


def fault_of_root(path: Path) -> str:
    """The reason why a root cannot be searched; empty if it can, or if it does not exist yet."""
    try:
        with os.scandir(path) as entries:
            next(entries, None)
    except FileNotFoundError:
        return ""
    except NotADirectoryError:
        return f"The root {path} is not a directory."
    except OSError as fault:
        return f"The root {path} cannot be read: {fault.strerror}."
    return ""


def discover(root: Path, suffixes: tuple[str, ...] = (SESSION_SUFFIX,)) -> Discovery:
    """Every regular file below `root` with such a suffix, once each; the root is a real path. No file is opened.

    A symbolic link to a file inside the root counts if that file is not listed itself. Linked directories are not
    searched: inside the root their sessions are found anyway, and outside it they do not belong to the root.
    Directories that cannot be listed are refused with a reason. Raises BadInput if `root` is not a directory.
    """
    with reported(root, "It was not searched."):
        if not root.is_dir():
            raise BadInput("no_such_root", f"{root} is not a directory. It was not searched. Check the root.")
    found: set[Path] = set()
    links: list[Path] = []
    refused: list[RefusedPath] = []
    unlisted: list[RefusedPath] = []
    pending = [root]
    while pending:
        directory = pending.pop()
        try:
            with scan_directory(directory) as entries:
                for entry in entries:
                    path = directory / entry.name
                    if entry.is_symlink():
                        links.append(path)
                    elif entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    elif not entry.name.endswith(suffixes):
                        continue
                    elif entry.is_file(follow_symlinks=False):
                        found.add(path)
                    else:
                        refused.append(RefusedPath(path, "is not a regular file"))
        except OSError as error:
            unlisted.append(RefusedPath(directory, f"cannot be listed: {error.strerror}"))
    _add_links(sorted(links), root, found, refused)
    return Discovery(tuple(sorted(found)), tuple(sorted(refused + unlisted)), tuple(sorted(unlisted)))


def _add_links(links: list[Path], root: Path, found: set[Path], refused: list[RefusedPath]) -> None:
    """Add the targets of links to `found`, and links that are not followed to `refused`."""
    for path in links:
        try:
            target = real_path(path)
        except Conflict as fault:
            refused.append(RefusedPath(path, fault.message))
            continue
        reason = _refuse_link(path, target, root, found)
        if reason is None:
            found.add(target)
        elif reason:
            refused.append(RefusedPath(path, reason))


def _refuse_link(path: Path, target: Path, root: Path, listed: set[Path]) -> str | None:
    """Why the link is not a separate session: "" if it does not look like one, None if it is one."""
    named_like_one = path.name.endswith(SESSION_SUFFIX)
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return f"leads to {target}, which does not exist" if named_like_one else ""
    except OSError as error:
        return f"leads to {target}, which cannot be read: {error.strerror}"
    if not (stat.S_ISDIR(mode) or named_like_one):
        return ""
    if not target.is_relative_to(root):
        return f"leads out of the root, to {target}"
    if stat.S_ISDIR(mode) or target in listed:
        return f"is another name of {target}, which is listed"
    if not stat.S_ISREG(mode):
        return "is not a regular file"
    return f"leads to a backup, {target}" if target.name.endswith(BACKUP_SUFFIXES) else None
