"""Performance of LLM planners: a real server, and the scripted provider on a socket.

The provider records when it has written the last byte of a call, and when a client closes a connection. These times and
the arrival at a browser's socket are measured with the same clock.
"""

import contextlib
import itertools
import json
import os
import re
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from compaction_app.core.prompt import SYSTEM, manifest_of, user_prompt
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import TOOL_SCHEMAS, Workbench
from compaction_app.scripted.request import Dialect
from compaction_app.scripted.server import ScriptedProvider

from .core import transcript_of
from .figures import Figure, median_ms
from .pages import QUIET_SECONDS, WAIT_SECONDS, BenchBrowser, BenchServer, follow
from .scale import LARGE_ENTRIES, environment_on, run_code, run_command
from .sessions import generate, parsed, write_session

AT_ONCE, CALLS = 20, 50
ENTRIES, ENTRY_BYTES = 300, 2_000
PACE: Final = 0.02
"""How long the provider takes for each piece of an answer, in seconds, while many runs plan."""
SLOW_PACE: Final = 0.3
STOPS: Final = 5
DIALECTS: Final[Sequence[Dialect]] = ("anthropic", "openai")
_DISCLOSED: Final = re.compile(r'name="disclosed" value="([^"]+)"')
_CONFIGURE: Final = """
import django, json, sys
django.setup()
from sessions_app.database.migrated import open_database
open_database()
from compaction_app.models import PlannerModel, Provider
for name, dialect, url in json.loads(sys.argv[1]):
    Provider.objects.create(name=name, dialect=dialect, base_url=url)
    for model in json.loads(sys.argv[2]):
        PlannerModel.objects.create(provider=name, name=model, window=200_000, output_limit=8_000)
"""
_ROWS: Final = """
import django, json, sys
django.setup()
from compaction_app.models import Run
runs = Run.objects.filter(pk__in=json.loads(sys.argv[1]))
print(json.dumps({run.pk: {
    "state": run.state, "worker": run.worker, "calls": run.calls, "last": run.last_seq,
    "proposals": run.proposals.count(),
    "events": list(run.events.order_by("pk").values_list("seq", "kind", "data")),
} for run in runs}))
"""


def models() -> Iterator[Figure]:
    """All figures of LLM planners."""
    yield from _prompt()
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name, _providers() as (fast, paced, slow):
        base = Path(name)
        root, data = base / "sessions", base / "data"
        root.mkdir()
        for number in range(AT_ONCE):
            path = root / f"s{number:02}.jsonl"
            write_session(path, generate(entries=ENTRIES, entry_bytes=ENTRY_BYTES, seed=number))
            os.utime(path, (time.time() - QUIET_SECONDS,) * 2)
        run_command(data, "index", str(root))
        _configure(data, fast, paced, slow)
        with BenchServer(data, [root]) as server:
            sessions = _sessions(server.browser)
            for dialect in DIALECTS:
                yield _call_to_row(server, data, fast, sessions[0], dialect)
            yield _stop(server, fast, sessions[1])
            yield from _many(server, data, sessions)
            killed = _until_deleted(server, data, sessions[0])
            yield from _killed(server, data, root, killed)


@contextlib.contextmanager
def _providers() -> Iterator[tuple[ScriptedProvider, ScriptedProvider, ScriptedProvider]]:
    with (
        ScriptedProvider() as fast,
        ScriptedProvider(pace=PACE) as paced,
        ScriptedProvider(pace=SLOW_PACE) as slow,
    ):
        yield fast, paced, slow


def _configure(data: Path, fast: ScriptedProvider, paced: ScriptedProvider, slow: ScriptedProvider) -> None:
    providers = [[f"fast-{dialect}", dialect, fast.base_url(dialect)] for dialect in DIALECTS]
    providers += [
        ["paced", "openai", paced.base_url("openai")],
        ["slow", "anthropic", slow.base_url("anthropic")],
    ]
    scripts = ["calls-100", f"calls-{CALLS}", "long-thinking", "good-plan"]
    run_code(environment_on(data), _CONFIGURE, json.dumps(providers), json.dumps(scripts))


def _rows(data: Path, *runs: str) -> list[dict[str, Any]]:
    numbers = [int(run.rsplit("/", 1)[1]) for run in runs]
    found: dict[str, dict[str, Any]] = json.loads(run_code(environment_on(data), _ROWS, json.dumps(numbers)))
    return [found[str(number)] for number in numbers]


def _sessions(browser: BenchBrowser) -> list[str]:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        found = sorted(set(re.findall(r'href="(/sessions/\d+/s\d\d\.jsonl)"', browser.get("/"))))
        if len(found) == AT_ONCE:
            return found
        time.sleep(0.2)
    raise RuntimeError("the sessions were not indexed")


def _start(browser: BenchBrowser, session: str, planner: str) -> str:
    """Start a run as the form does, with the disclosure that it showed; returns its path."""
    page = browser.get(f"{session}/compact?planner={planner}")
    disclosed = _DISCLOSED.search(page)
    if disclosed is None:
        raise RuntimeError(f"the form does not disclose what is sent to {planner}")
    return browser.post(page, f"{session}/compact", {"planner": planner, "disclosed": disclosed[1], "keep": "40"})[1]


# ---- the figures -------------------------------------------------------------------------------------------


def _prompt() -> Iterator[Figure]:
    """The prompt for a session of 50,000 entries, and the time to build it from the prepared transcript."""
    transcript = transcript_of(parsed(list(generate(entries=LARGE_ENTRIES, entry_bytes=2_400, seed=2))))
    bench = Workbench(DeletionStore(transcript))

    def build() -> str:
        return user_prompt(manifest_of(transcript), transcript.parameters, bench.budget)

    size = len(build().encode()) + len(SYSTEM.encode()) + len(json.dumps(TOOL_SCHEMAS).encode())
    yield Figure("prompt_of_50000_entries", round(size / 1000, 1), "KB", 100)
    yield Figure("prompt_of_50000_entries_built", median_ms(build), "ms", 1_000)


def _call_to_row(server: BenchServer, data: Path, provider: ScriptedProvider, session: str, dialect: Dialect) -> Figure:
    """From the last byte of a call at the provider to its row at a browser's socket."""
    before = len(provider.requests)
    run = _start(server.browser, session, f"fast-{dialect}/calls-100")
    arrived: dict[int, float] = {}
    for seq, moment in follow(server.browser, run):
        arrived.setdefault(seq, moment)
    written = [moment for request in provider.requests[before:] for moment in request.calls_at]
    (rows,) = _rows(data, run)
    called = [seq for seq, kind, _ in rows["events"] if kind == "called"]
    waits = [1000 * (arrived[seq] - moment) for seq, moment in zip(called, written, strict=True)][:100]
    return Figure(f"call_to_row_{dialect}", round(statistics.median(waits), 1), "ms", 100)


def _stop(server: BenchServer, provider: ScriptedProvider, session: str) -> Figure:
    """From the click on stop until the provider sees the connection closed; the slowest of several."""
    slowest = 0.0
    for _ in range(STOPS):
        known = len(provider.closed)
        run = _start(server.browser, session, "fast-anthropic/long-thinking")
        provider.wait_for(lambda: provider.requests[-1].model == "long-thinking", WAIT_SECONDS)
        time.sleep(0.5)
        page = server.browser.get(run)
        began = time.time()
        server.browser.post(page, f"{run}/stop", {})
        provider.wait_for(lambda known=known: len(provider.closed) > known, WAIT_SECONDS)  # type: ignore[misc]
        closed = provider.closed[-1].closed_at
        slowest = max(slowest, 1000 * ((closed or time.time()) - began))
        _until(lambda run=run: "Stop the run" not in server.browser.get(run))
    return Figure("stop_to_closed_slowest", round(slowest, 1), "ms", 1_000)


def _many(server: BenchServer, data: Path, sessions: list[str]) -> Iterator[Figure]:
    """Twenty runs at the same time: their rows, and how fast the pages are meanwhile."""
    browser, began = server.browser, time.monotonic()
    runs = [_start(browser, session, f"paced/calls-{CALLS}") for session in sessions]
    times: list[float] = []
    looked = 0
    while True:
        for path in ("/", runs[looked % AT_ONCE], sessions[looked % AT_ONCE], "/inbox"):
            moment = time.perf_counter()
            page = browser.get(path)
            times.append(1000 * (time.perf_counter() - moment))
        looked += 1
        if "mark--live" not in page:
            break
        if time.monotonic() - began > WAIT_SECONDS:
            raise RuntimeError("the runs did not end")
        time.sleep(0.05)
    took = time.monotonic() - began
    rows = _rows(data, *runs)
    yield Figure("runs_at_once", sum(row["state"] == "target_met" for row in rows), "runs", None)
    yield Figure("runs_at_once_calls", min(row["calls"] for row in rows), "calls", None)
    yield Figure("runs_at_once_took", round(took, 1), "s", None)
    yield Figure("runs_at_once_events", sum(row["last"] for row in rows), "events", None)
    yield Figure("runs_at_once_lost", sum(map(_lost, rows)), "events", 0)
    yield Figure("runs_at_once_misplaced", sum(map(_misplaced, rows)), "events", 0)
    yield Figure("runs_at_once_page_median", round(statistics.median(times), 1), "ms", None)
    yield Figure("runs_at_once_page_slowest", round(max(times), 1), "ms", 300)


def _lost(row: dict[str, Any]) -> int:
    """The number of events that a run should have but has not."""
    seqs = {seq for seq, _, _ in row["events"]}
    calls, made = {data["call"] for _, kind, data in row["events"] if kind == "called"}, int(row["calls"])
    missing = len(set(range(1, row["last"] + 1)) - seqs) + len(set(range(1, made + 1)) - calls)
    return missing + max(0, CALLS - made) + int(row["state"] != "target_met")


def _misplaced(row: dict[str, Any]) -> int:
    """The number of events that precede what they follow from: by number, by turn, by position in a turn."""
    order = {"asked": 0, "retried": 1, "streamed": 1, "answered": 2, "called": 3}
    places = [(data["turn"], order[kind], data.get("index", 0)) for _, kind, data in row["events"] if kind in order]
    seqs = [seq for seq, _, _ in row["events"]]
    return sum(one > other for one, other in itertools.pairwise(places)) + (seqs != sorted(seqs))


def _until_deleted(server: BenchServer, data: Path, session: str) -> str:
    """A run that has deleted something and has not ended."""
    run = _start(server.browser, session, "slow/good-plan")
    _until(lambda: bool(_rows(data, run)[0]["proposals"]))
    return run


def _killed(server: BenchServer, data: Path, root: Path, run: str) -> Iterator[Figure]:
    """Server and worker are killed in the middle of a run; another server reports it, and the run is resumed."""
    (row,) = _rows(data, run)
    kept = row["proposals"]
    server.kill()
    os.kill(int(row["worker"].split(":")[1]), signal.SIGKILL)
    began = time.monotonic()
    with BenchServer(data, [root]) as again:
        _until(lambda: _rows(data, run)[0]["state"] == "interrupted")
        yield Figure("killed_run_interrupted", round(time.monotonic() - began, 1), "s", 30)
        again.browser.post(again.browser.get(run), f"{run}/resume", {})
        _until(lambda: _rows(data, run)[0]["state"] not in ("queued", "running", "interrupted"))
    (row,) = _rows(data, run)
    carried = next(data["kept"] for _, kind, data in row["events"] if kind == "carried")
    yield Figure("killed_run_targets_lost", kept - carried, "targets", 0)
    yield Figure("killed_run_not_at_target", int(row["state"] != "target_met"), "runs", 0)


def _until(found: Any) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not found():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the condition was not met within {WAIT_SECONDS} s")
        time.sleep(0.2)
