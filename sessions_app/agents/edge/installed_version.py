"""EDGE: the version of an agent that is installed, as its own program prints it.

The program is looked for in the absolute directories of PATH only, so that no file of a project is ever run. It is run
without a shell, without input and in the root directory. Each program is run once in a process, until it changes.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from functools import lru_cache
from pathlib import Path
from typing import Final

SECONDS: Final = 10
"""The timeout of a program, in seconds; on a busy computer, starting Node takes some seconds."""
READ_BYTES: Final = 4_096
_VERSION: Final = re.compile(rb"(?<![\d.])(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
_asking: Final = threading.Lock()

Version = tuple[int, ...]


def program_on_path(name: str) -> str | None:
    """The program with this name in an absolute directory of PATH; None if there is none."""
    directories = [one for one in os.environ.get("PATH", "").split(os.pathsep) if Path(one).is_absolute()]
    return shutil.which(name, path=os.pathsep.join(directories)) if directories else None


def installed_version(name: str) -> Version | None:
    """The version of the program with this name; None if there is none, or if it does not print one in time."""
    path = program_on_path(name)
    if path is None:
        return None
    try:
        found = Path(path).stat()
    except OSError:
        return None  # it was removed at this moment
    with _asking:
        return _printed_version(path, found.st_mtime_ns, found.st_ino)


@lru_cache(maxsize=16)
def _printed_version(path: str, mtime_ns: int, inode: int) -> Version | None:
    """The version that a program prints. `mtime_ns` and `inode` are part of the cache key, so that a replaced program
    is run again.
    """
    del mtime_ns, inode
    try:
        printed = _output_of(path)
    except OSError:
        return None
    version = _VERSION.search(printed)
    return tuple(map(int, version.groups())) if version is not None else None


def _output_of(path: str) -> bytes:
    """The beginning of what a program prints of its version; nothing if it fails or takes too long."""
    # A file instead of a pipe: whatever the program starts may keep it open; it is not waited for.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S603  # the user's own program, with a fixed argument
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=os.sep,
            start_new_session=True,
        )
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return b""
        output.seek(0)
        return output.read(READ_BYTES) if code == 0 else b""
