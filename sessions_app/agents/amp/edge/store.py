"""EDGE: the threads in Amp's directory."""

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from sessions_app.agents.amp.pure.format import lines_of_thread
from sessions_app.agents.base import Store, named_directory
from sessions_app.disk.discovery import Discovery, RefusedPath
from sessions_app.disk.files import FileState, SessionReader, scan_directory
from sessions_app.disk.rendered import RenderedReader, opened_document
from sessions_app.sessionlog.errors import BadInput

DIRECTORY: Final = ("amp", "threads")
_HEAD: Final = re.compile(rb'\s*\{[^{}\[\]]{0,1000}"id"\s*:\s*"T-')
"""An object with the id of a thread among its first fields."""


class AmpStore(Store):
    """The threads as a read-only store."""

    def roots(self, environment: Mapping[str, str]) -> Sequence[str]:
        return (str(named_directory("XDG_DATA_HOME", Path("~/.local/share"), environment).joinpath(*DIRECTORY)),)

    def owns(self, path: Path) -> bool:
        return path.parts[-2:] == DIRECTORY or path.parts[-3:-1] == DIRECTORY

    def recognises(self, head: bytes) -> bool:
        return _HEAD.match(head) is not None

    def discover(self, root: Path) -> Discovery:
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

    def open(self, path: Path) -> SessionReader:
        return RenderedReader(path, partial(opened_document, path, lines_of_thread, "a thread of Amp"))

    def state(self, path: Path) -> FileState | None:
        found = super().state(path)
        if found is None:
            return None
        with self.open(path) as reader:
            return reader.state()

    def read_only(self, path: Path) -> str:
        return (
            "Amp keeps its threads on its servers and imports none, so nothing can be written for this one. What you "
            "keep can be pasted into a new thread."
        )


def _is_document(entry: os.DirEntry[str]) -> bool:
    is_named = entry.name.startswith("T-") and entry.name.endswith(".json")
    return is_named and entry.is_file(follow_symlinks=False)
