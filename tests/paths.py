"""Paths: the checkout, and real sessions if there are any."""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def corpus() -> Path | None:
    """The directory of real sessions, if it exists: `$REDLINE_CORPUS`, otherwise `../shared/sessions`."""
    directory = Path(os.environ.get("REDLINE_CORPUS", PROJECT.parent / "shared" / "sessions"))
    return directory if directory.is_dir() else None


def corpus_sessions(directory: Path) -> list[Path]:
    """Every session of the corpus; without one, a generated session that is written to `directory`."""
    found = corpus()
    if found is not None:
        return sorted(found.glob("pi*/*.jsonl"))
    from devtools.bench.sessions import generate, write_session

    path = directory / "generated.jsonl"
    write_session(path, generate(entries=400, entry_bytes=900, seed=7))
    return [path]
