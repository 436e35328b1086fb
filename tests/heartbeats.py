"""Heartbeats for a run without a worker: a running server would give the run up without them."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Final

BEAT_SECONDS: Final = 1
BEAT: Final = "UPDATE compaction_app_run SET beats = beats + 1 WHERE id = ? AND state = 'running'"


def start_heartbeats(database: Path, run: int, over: threading.Event) -> threading.Thread:
    """Send heartbeats for a run until it is no longer running, its database is gone, or `over` is set."""
    thread = threading.Thread(target=_beat, args=(database, run, over), name=f"pulse of run {run}", daemon=True)
    thread.start()
    return thread


def _beat(database: Path, run: int, over: threading.Event) -> None:
    while not over.wait(BEAT_SECONDS):
        try:
            with closing(sqlite3.connect(f"file:{database}?mode=rw", timeout=60, uri=True)) as opened, opened:
                if not opened.execute(BEAT, (run,)).rowcount:
                    return
        except sqlite3.OperationalError:
            return
