"""The full-text search: 60,000 entries in 2,000 sessions, their index, and the page of 50 queries.

Times are those of whole requests of the page over the loopback interface, so slightly more than the server's own. The
processor time of the server's process, user and system, varies less while other processes run.
"""

import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from sessions_app.database.text_store import FILE

from .figures import Figure
from .pages import BenchServer
from .scale import run_command
from .sessions import generate, write_session

FILES, ENTRIES, ENTRY_BYTES = 2_000, 30, 2_000
WORDS: Final = 30_000
"""The number of different words, of which a few are frequent and most are rare, as in a language."""
LETTERS: Final = "etaoinshrdlucmfwypvbgkjqxz"
CHARACTERS_OF_WORD: Final = 7
QUERIES: Final = 50
TRIES: Final = 3
"""The number of tries for each query: the fastest counts, because other processes slow down the others."""
SEED: Final = 4


def search() -> Iterator[Figure]:
    """Index the texts of all sessions, and search them for frequent and rare words and for phrases."""
    chance = random.Random(SEED)  # noqa: S311  # a generator of test data
    words = ["".join(chance.choices(LETTERS, k=chance.randint(2, 11))) for _ in range(WORDS)]
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name:
        root, data = Path(name) / "sessions", Path(name) / "data"
        root.mkdir()
        size = 0
        for number in range(FILES):
            size += write_session(root / f"{number}.jsonl", _session(number, words, chance))
        run_command(data, "index", str(root))
        started = time.perf_counter()
        run_command(data, "search", words[0], "--limit", "1")
        yield Figure("search_index_seconds", round(time.perf_counter() - started, 1), "s", None)
        index = sum(path.stat().st_size for path in data.glob(f"{FILE}*"))
        yield Figure("search_index_size", round(100 * index / size, 1), "% of the files", 30)
        with BenchServer(data, [root], agent="pi", reader="") as server:
            times, processor_times = [], []
            for query in _queries(words, chance):
                path = f"/search?{urlencode({'q': query})}"
                server.browser.get(path)
                tries = [_timed(server, path) for _ in range(TRIES)]
                times.append(min(took for took, _ in tries))
                processor_times += sorted(used for _, used in tries if used is not None)[:1]
        yield Figure("search_median", round(statistics.median(times), 1), "ms", 15)
        yield Figure("search_slowest", round(max(times), 1), "ms", 60)
        if processor_times:
            yield Figure("search_cpu_median", round(statistics.median(processor_times), 1), "ms", None)
            yield Figure("search_cpu_slowest", round(max(processor_times), 1), "ms", None)


def _timed(server: BenchServer, path: str) -> tuple[float, float | None]:
    """How long a request of a page takes, and the processor time of the server meanwhile, in milliseconds."""
    before = server.processor_seconds
    took = server.browser.milliseconds(path)
    after = server.processor_seconds
    return took, 1_000 * (after - before) if before is not None and after is not None else None


def _session(number: int, words: list[str], chance: random.Random) -> Iterator[dict[str, Any]]:
    """A generated session with other texts."""
    weights = list(itertools.accumulate(1 / (rank + 3) for rank in range(len(words))))

    def prose(length: int) -> str:
        return " ".join(chance.choices(words, cum_weights=weights, k=max(20, length // CHARACTERS_OF_WORD)))

    for entry in generate(entries=ENTRIES, entry_bytes=ENTRY_BYTES, seed=number):
        message = entry.get("message", {})
        if isinstance(message.get("content"), str):
            message["content"] = prose(0)
        for block in message.get("content", ()):
            if "text" in block:
                block["text"] = prose(len(block["text"]))
        yield entry


def _queries(words: list[str], chance: random.Random) -> Iterator[str]:
    """Words of every frequency, alone and together, and phrases."""
    for number in range(QUERIES):
        few = [words[int(WORDS ** chance.random())] for _ in range(1 + number % 3)]
        yield f'"{" ".join(few)}"' if number % 10 == 9 else " ".join(few)
