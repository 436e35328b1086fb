"""Performance at scale: commands in separate processes, on generated files, with their peak memory."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from sessions_app.server.children import DIRECTORY, environment, python_command, redline_command

from .figures import Figure
from .sessions import generate, write_session

MEGABYTE: Final = 1_000_000
LARGE_ENTRIES, LARGE_BYTES = 50_000, 120_000_000
HUGE_ENTRIES, HUGE_BYTES, HUGE_LINE = 366_000, 2_400_000_000, 12_800_000
MANY, MANY_BYTES, MANY_LINE, MANY_DIFFERENT = 2_000, 190_000, 2_400, 20
APPENDED: Final = 10
_MAXRSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024


class Ran(NamedTuple):
    """The output of a command and its resources: peak memory in megabytes, processor time in seconds."""

    document: dict[str, Any]
    peak_mb: float
    processor_seconds: float


def run_command(data_directory: Path, *arguments: str) -> Ran:
    """Run a Redline command with `--json` in a separate process. Raises RuntimeError if it fails."""
    command = redline_command(*arguments, "--json")
    own = environment_on(data_directory)
    with subprocess.Popen(command, cwd=DIRECTORY, env=own, stdout=subprocess.PIPE) as child:  # noqa: S603  # our own
        if child.stdout is None:
            raise RuntimeError("the child has no output")
        printed = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"redline {arguments[0]} ended with {child.returncode}: {printed.decode()[:500]}")
    return Ran(
        json.loads(printed),
        round(usage.ru_maxrss * _MAXRSS_UNIT / MEGABYTE, 1),
        round(usage.ru_utime + usage.ru_stime, 2),
    )


def many() -> Iterator[Figure]:
    """2,000 sessions of 190 KB: indexed for the first time, then 1,000 of them checked again."""
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name:
        directory, data = Path(name) / "sessions", Path(name) / "data"
        size = _write_many(directory)
        yield Figure("many_files_megabytes", round(size / MEGABYTE, 1), "MB", None)
        run_command(data, "sessions")
        first = run_command(data, "index", str(directory))
        yield Figure("index_many_seconds", first.document["seconds"], "s", 7)
        yield Figure("index_many_processor_seconds", first.processor_seconds, "s", None)
        yield Figure("index_many_peak", first.peak_mb, "MB", 200)
        again = run_command(data, "index", str(directory / "0"))
        yield Figure("index_unchanged_seconds", again.document["seconds"], "s", 1)
        yield Figure("index_unchanged_processor_seconds", again.processor_seconds, "s", None)


def _write_many(directory: Path) -> int:
    """Write MANY sessions to two directories, as copies of a few generated ones; returns their size in bytes."""
    lines = MANY_BYTES // MANY_LINE
    made = directory / "made.jsonl"
    directory.mkdir()
    contents = []
    for seed in range(MANY_DIFFERENT):
        write_session(made, generate(entries=lines, entry_bytes=MANY_LINE, seed=seed))
        contents.append(made.read_bytes())
    made.unlink()
    for half in ("0", "1"):
        (directory / half).mkdir()
        for number in range(MANY // 2):
            (directory / half / f"{number}.jsonl").write_bytes(contents[number % MANY_DIFFERENT])
    return 2 * sum(len(contents[number % MANY_DIFFERENT]) for number in range(MANY // 2))


def environment_on(data_directory: Path, **more: str) -> dict[str, str]:
    """The environment of a process that uses this data directory."""
    return {**environment(), "REDLINE_DATA_DIR": str(data_directory), **more}


def run_code(environment: dict[str, str], code: str, *arguments: str) -> str:
    """The output of Python code in a separate process, which may use Django."""
    done = subprocess.run(  # noqa: S603  # our own
        python_command("-c", code, *arguments),
        cwd=DIRECTORY,
        env={**environment, "DJANGO_SETTINGS_MODULE": "redline.settings"},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return done.stdout


def large() -> Iterator[Figure]:
    """120 MB and 50,000 entries: indexed for the first time, indexed after ten more lines, and planned."""
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name:
        directory = Path(name)
        path, data = directory / "large.jsonl", directory / "data"
        mean = LARGE_BYTES // LARGE_ENTRIES
        size = write_session(path, generate(entries=LARGE_ENTRIES, entry_bytes=mean, seed=2))
        yield Figure("large_file_megabytes", round(size / MEGABYTE, 1), "MB", None)
        # The database is created first, as in normal use.
        run_command(data, "sessions")
        first = run_command(data, "index", str(path))
        database = sum(found.stat().st_size for found in data.glob("redline.sqlite3*"))
        yield Figure("index_large_seconds", first.document["seconds"], "s", 2.5)
        yield Figure("index_large_peak", first.peak_mb, "MB", 200)
        yield Figure("index_large_database", round(database / size * 100, 2), "% of the file", 15)
        added = append_entries(path, LARGE_ENTRIES)
        again = run_command(data, "index", str(path))
        yield Figure("index_appended_milliseconds", round(again.document["seconds"] * 1000), "ms", 200)
        yield Figure("index_appended_bytes_read", again.document["bytes_read"], "bytes", added + 16 * 1024)
        planned = run_command(data, "compact", str(path), "--dry-run")
        yield Figure("compact_dry_run_peak", planned.peak_mb, "MB", 500)


def append_entries(path: Path, entries: int) -> int:
    """Append APPENDED lines to a generated session with that many entries; returns their size in bytes."""
    lines = b""
    for number in range(entries, entries + APPENDED):
        message = {"role": "user", "content": f"and now entry {number}"}
        entry = {
            "type": "message",
            "id": f"{number + 1:08x}",
            "parentId": f"{number:08x}",
            "timestamp": "2026-02-01T00:00:00.000Z",
            "message": message,
        }
        lines += json.dumps(entry).encode() + b"\n"
    with path.open("ab") as file:
        file.write(lines)
    return len(lines)


def huge() -> Iterator[Figure]:
    """2.4 GB in 366,000 lines, one of them 12.8 MB: indexed with limited memory."""
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name:
        directory = Path(name)
        path = directory / "huge.jsonl"
        mean = HUGE_BYTES // HUGE_ENTRIES
        made = generate(entries=HUGE_ENTRIES, entry_bytes=mean, seed=3, long_line=HUGE_LINE)
        size = write_session(path, made)
        yield Figure("huge_file_megabytes", round(size / MEGABYTE, 1), "MB", None)
        ran = run_command(directory / "data", "index", str(path))
        yield Figure("index_huge_peak", ran.peak_mb, "MB", 400)
        yield Figure("index_huge_seconds", ran.document["seconds"], "s", None)
        yield Figure("index_huge_entries_missing", HUGE_ENTRIES - ran.document["entries"], "entries", 0)
