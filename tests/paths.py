"""Paths: the checkout, and real sessions if there are any."""

import os
from pathlib import Path

from tests.budget import FACTOR

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


def sessions_to_try(directory: Path) -> list[Path]:
    """The sessions of the corpus with which a test makes a whole journey: the small ones; in `make test-all` all."""
    found = corpus_sessions(directory)
    return [path for path in found if path.stat().st_size < 600_000 or FACTOR > 1] or found[:1]
