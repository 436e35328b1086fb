"""Sessions in a server's root, and runs in the state that a test needs."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests import html
from tests.factories import assistant, call, chain, result, session_bytes, text, user, working_session
from tests.files import place
from tests.paths import corpus
from tests.server import Server, plan_at
from tests.wait import WAIT_SECONDS, wait_until

REAL: Final = "pi/before-compaction.v3.jsonl"
MOMENT_SECONDS: Final = 0.02
"""How long a worker that is to be paused runs between two checks, in seconds."""


def titled_session(name: str, **shape: int) -> list[dict[str, Any]]:
    """A session worth compacting whose title is `Mend the NAME parser.`"""
    recorded = working_session(**shape)
    recorded[1]["message"]["content"] = title(name)
    return recorded


def title(name: str) -> str:
    return f"Mend the {name} parser."


def place_titled(root: Path, name: str, **shape: int) -> Path:
    return place(root / f"{name}.jsonl", session_bytes(titled_session(name, **shape)))


def long_session() -> bytes:
    """A real session of some megabytes if there is one, otherwise a generated one with as many turns."""
    found = corpus()
    path = found / REAL if found is not None else None
    if path is not None and path.is_file():
        return path.read_bytes()
    return session_bytes(session_of_turns(40))


def session_of_turns(count: int) -> list[dict[str, Any]]:
    """A session of this many turns, each with three calls and their outputs."""
    turns = []
    for number in range(1, count + 1):
        turns += [user(f"Now look at part {number} of the parser.")]
        for step in range(1, 4):
            name = f"c{number}_{step}"
            words = "\n".join(f"line_{name}_{line} of the output" for line in range(60))
            turns += [
                assistant(text(f"Step {step} of part {number}."), call(name, path=f"src/part_{number}.py")),
                result(name, words),
            ]
        turns += [assistant(text(f"Part {number} is mended."))]
    return chain(*turns)


def forked_session() -> bytes:
    """A session with two branches: the agent went back once."""
    trunk = chain(
        user("Mend the forked parser."),
        assistant(text("I look."), call("c1", path="src/a.py")),
        result("c1", "\n".join(f"line {number}" for number in range(120))),
        assistant(text("This is the first way.")),
        user("No, another way."),
        assistant(text("This is the second way.")),
        user("Good."),
    )
    trunk[5]["parentId"] = "e3"
    return session_bytes(trunk)


def damaged_session(name: str) -> bytes:
    """A session without a header, with two records on one line, a missing parent, NUL bytes and a torn last line."""
    lines = session_bytes(titled_session(name)[1:]).splitlines(keepends=True)
    lines[2] = lines[2].rstrip(b"\n")
    lines[5] = lines[5].replace(b'"parentId": "', b'"parentId": "gone-')
    lines[8] = lines[8].replace(b"\n", b"\0" * 300 + b"\n")
    return b"".join([*lines, lines[1][:60]])


def start_run(server: Server, address: str, **given: str) -> str:
    """Start a run of the session at this address; returns the address of its plan."""
    form = {"keep": "50", "planner": "embedded", **given}
    return plan_at(server.post(f"{address}/compact", f"{address}/compact", **form))


def finished_run(server: Server, address: str, **given: str) -> str:
    """The path of a run that has ended. A server that leaves runs to workers needs one: see `working`."""
    page = start_run(server, address, **given)
    server.wait_for(lambda: is_over(server, page))
    return page


@contextmanager
def working(server: Server) -> Iterator[None]:
    """A worker for a server that leaves runs to workers, as long as this lasts."""
    command = [sys.executable, "-m", "redline", "worker", "--until-idle"]
    # It ends when its input does.
    with subprocess.Popen(
        command, env=server.environment, cwd=server.root, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as worker:
        try:
            yield
        finally:
            worker.terminate()


def leave_nothing_queued(server: Server) -> None:
    """End what waits for a worker: the next one would begin with it."""
    with closing(sqlite3.connect(server.data / "redline.sqlite3", timeout=WAIT_SECONDS)) as opened, opened:
        for table, ended in (("run", "cancelled"), ("summarydraft", "failed"), ("experiment", "stopped")):
            opened.execute(f"UPDATE compaction_app_{table} SET state = '{ended}' WHERE state = 'queued'")  # noqa: S608


def is_over(server: Server, page: str) -> bool:
    return not html.elements(server.get(f"{page}/log"), "[ws-connect]")


def worker_pid(server: Server, run: int) -> int | None:
    """The process of a run according to the database; None before it starts and after it ends."""
    query = "SELECT worker FROM compaction_app_run WHERE id = ? AND state = 'running'"
    with closing(sqlite3.connect(server.data / "redline.sqlite3", timeout=WAIT_SECONDS)) as database:
        row = database.execute(query, (run,)).fetchone()
    return int(row[0].split(":")[1]) if row is not None else None


def newest_run(server: Server) -> int:
    return query_number(server, "SELECT max(id) FROM compaction_app_run")


@dataclass
class PausedWorker:
    """The stopped process of a run. Heartbeats from the test keep the server from giving the run up."""

    pid: int
    over: threading.Event

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.over.set()

    def kill(self) -> None:
        self.over.set()
        os.kill(self.pid, signal.SIGKILL)


def paused_run(server: Server, start: Callable[[], str], reached: Callable[[int], bool]) -> tuple[str, PausedWorker]:
    """Start a run, and stop its worker once `reached` is true of the run, outside any transaction.

    The worker is stopped when it starts and then runs only for moments, so it cannot get far beyond that point, however
    late this test is scheduled. Returns the path of the run's page, which `start` returns, and the worker.
    """
    before = newest_run(server)

    def stop_new() -> int | None:
        run = newest_run(server)
        pid = worker_pid(server, run) if run > before else None
        if pid is not None:
            os.kill(pid, signal.SIGSTOP)
        return pid

    with ThreadPoolExecutor(1) as watching:
        stopped = watching.submit(wait_until, stop_new, "no worker began")
        page = start()
        pid = stopped.result()
    run = run_number(page)

    def is_reached() -> bool:
        far_enough = reached(run)
        if far_enough and can_be_written(server):
            return True
        os.kill(pid, signal.SIGCONT)
        time.sleep(0 if far_enough else MOMENT_SECONDS)
        os.kill(pid, signal.SIGSTOP)
        return False

    wait_until(is_reached, "the run did not get that far")
    return page, PausedWorker(pid, server.keep_alive(run))


def run_number(page: str) -> int:
    return int(plan_at(page).rsplit("/", 1)[1])


def event_count(server: Server, run: int) -> int:
    return query_number(server, "SELECT count(*) FROM compaction_app_runevent WHERE run_id = ?", run)


def proposal_count(server: Server, run: int) -> int:
    return query_number(server, "SELECT count(*) FROM compaction_app_proposal WHERE run_id = ?", run)


def query_number(server: Server, query: str, *values: int) -> int:
    with closing(sqlite3.connect(server.data / "redline.sqlite3", timeout=WAIT_SECONDS)) as connection:
        return int(connection.execute(query, values).fetchone()[0] or 0)


def can_be_written(server: Server) -> bool:
    """Whether no transaction locks the database; a stopped process with one would block all writers."""
    path = server.data / "redline.sqlite3"
    with closing(sqlite3.connect(path, timeout=0.2, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
    return True


def undecided_keys(server: Server, run: str) -> list[str]:
    """The keys of the undecided proposals in the first rows of a review's groups, in order."""
    groups = html.elements(server.get(f"{run}?open=none"), "section[data-key]")
    keys = "&".join(f"open={group.attributes['data-key']}" for group in groups)
    rows = html.elements(server.get(f"{run}?{keys}"), "li[data-undecided]")
    return [str(row.attributes["data-key"]) for row in rows]


def decide(server: Server, run: str, **values: str) -> None:
    """Send one decision, as the form of the review does."""
    server.post(run, f"{run}/decide", **values)


def approve_everything(server: Server, run: str) -> None:
    """Approve every group of a review."""
    for group in html.elements(server.get(run), "section[data-key]"):
        decide(server, run, approve_group=str(group.attributes["data-key"]))


def undo_all(server: Server, run: str) -> None:
    """Undo every decision of a review. This adds the same rows as that many single undos."""
    number = run_number(run)
    with closing(sqlite3.connect(server.data / "redline.sqlite3", timeout=WAIT_SECONDS)) as database, database:
        made = "SELECT seq, kind FROM compaction_app_decision WHERE run_id = ? AND seq > 0 ORDER BY seq"
        rows = database.execute(made, (number,)).fetchall()
        undone = sum(kind == "undo" for _, kind in rows)
        database.executemany(
            "INSERT INTO compaction_app_decision (run_id, seq, kind, targets, at) "
            "VALUES (?, ?, 'undo', '[]', datetime('now'))",
            [(number, len(rows) + more) for more in range(1, len(rows) - 2 * undone + 1)],
        )
