"""EDGE: the threads in Amp's directory."""

from __future__ import annotations

import os
from pathlib import Path

from sessions_app.sessionlog.errors import BadInput
from sessions_app.storage.discovery import Discovery, RefusedPath
from sessions_app.storage.nofollow import scan_directory


def discover(root: Path) -> Discovery:
    """The documents in a directory; no file is opened. Raises BadInput `no_such_root`."""
    if not root.is_dir():
        raise BadInput("no_such_root", f"{root} is not a directory. It was not searched. Check the root.")
    try:
        with scan_directory(root) as entries:
            paths = sorted(root / entry.name for entry in entries if _is_document(entry))
    except OSError as fault:
        unlisted = (RefusedPath(root, f"cannot be listed: {fault.strerror}"),)
        return Discovery((), unlisted, unlisted)
    return Discovery(tuple(paths), ())


def _is_document(entry: os.DirEntry[str]) -> bool:
    is_named = entry.name.startswith("T-") and entry.name.endswith(".json")
    return is_named and entry.is_file(follow_symlinks=False)
