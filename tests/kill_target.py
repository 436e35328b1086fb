"""The process that `test_kill` kills: it backs up a session, appends to it and restores it, forever.

    python -m tests.kill_target DATA_DIR SESSION LINE_FILE

Prints each phase as it begins, one word per line, unbuffered. It does not clean up: whatever a kill leaves behind is
for the next process that takes the lock.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from sessions_app.storage import append, backups, files, locks, restore


def fingerprint_of(path: Path) -> files.Fingerprint:
    """The fingerprint of all complete lines of `path`."""
    with files.SessionReader(path) as reader:
        end = offset = 0
        for chunk in reader.chunks(0):
            if b"\n" in chunk:
                end = offset + chunk.rfind(b"\n") + 1
            offset += len(chunk)
        return reader.fingerprint(end, None)


def state_of(path: Path) -> files.FileState:
    """The state of `path`, which must exist."""
    state = files.file_state(path)
    if state is None:
        raise AssertionError(f"{path} is gone")
    return state


def never_complete(_: bytes) -> bool:
    """For sessions whose last line has its newline: it must not be called."""
    return False


def main(data_dir: Path, session: Path, line: bytes) -> None:
    def begin(phase: str) -> None:
        os.write(1, phase.encode() + b"\n")

    begin("start")
    while True:
        begin("lock")
        with locks.session_lock(data_dir, session, 5) as locked:
            begin("back_up")
            backup = backups.back_up(locked, fingerprint_of(session), datetime.now(UTC))
            begin("append")
            append.append_lines(locked, [line], state_of(session), never_complete)
            begin("restore")
            restored = restore.restore(
                locked, backup.path, backup.recorded_sha256, state_of(session), datetime.now(UTC)
            )
            begin("delete")
            backups.delete_backup(backup.path)
            if restored.previous_backup is not None:
                backups.delete_backup(restored.previous_backup.path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]).read_bytes())
