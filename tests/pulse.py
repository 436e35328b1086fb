"""The heartbeats of a run that no worker has: without them a server that runs gives it up.

PYTEST_DONT_REWRITE: it is imported before pytest could.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Final

BEAT_SECONDS: Final = 1
BEAT: Final = "UPDATE compaction_app_run SET beats = beats + 1 WHERE id = ? AND state = 'running'"


def keep_alive(database: Path, run: int) -> None:
    """Beat for a run until it is not running any more, or its database is gone."""
    threading.Thread(target=_beat, args=(database, run), name=f"pulse of run {run}", daemon=True).start()


def _beat(database: Path, run: int) -> None:
    while True:
        try:
            with closing(sqlite3.connect(f"file:{database}?mode=rw", timeout=60, uri=True)) as opened, opened:
                if not opened.execute(BEAT, (run,)).rowcount:
                    return
        except sqlite3.OperationalError:
            return
        time.sleep(BEAT_SECONDS)
