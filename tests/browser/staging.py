"""What is on the stage when a page opens: sessions in the server's root, and runs that are as far as a test needs."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tests.factories import assistant, call, chain, result, session_bytes, text, user, working_session
from tests.files import place
from tests.paths import corpus
from tests.server import Server

REAL: Final = "pi/before-compaction.v3.jsonl"
LONG_STEPS: Final = 6_000
"""Calls in a session whose planning takes a while."""
LEAD: Final = re.compile(r'name="approve" value="([^"]+)"')


def titled(name: str, **shape: int) -> list[dict[str, Any]]:
    """A session worth compacting whose title is `Mend the NAME parser.`"""
    recorded = working_session(**shape)
    recorded[1]["message"]["content"] = title(name)
    return recorded


def title(name: str) -> str:
    return f"Mend the {name} parser."


def put_titled(root: Path, name: str, **shape: int) -> Path:
    return place(root / f"{name}.jsonl", session_bytes(titled(name, **shape)))


def worked_session() -> bytes:
    """A real session of some megabytes where there is one, else a generated one with as many turns."""
    found = corpus()
    path = found / REAL if found is not None else None
    if path is not None and path.is_file():
        return path.read_bytes()
    turns = []
    for number in range(1, 41):
        turns += [user(f"Now look at part {number} of the parser.")]
        for step in range(1, 4):
            name = f"c{number}_{step}"
            words = "\n".join(f"line_{name}_{line} of the output" for line in range(60))
            turns += [
                assistant(text(f"Step {step} of part {number}."), call(name, path=f"src/part_{number}.py")),
                result(name, words),
            ]
        turns += [assistant(text(f"Part {number} is mended."))]
    return session_bytes(chain(*turns))


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


def start(server: Server, address: str, **given: str) -> str:
    """Start a run of the session at an address; gives the path of its page."""
    form = {"keep": "50", "planner": "embedded", **given}
    return server.post(f"{address}/compact", f"{address}/compact", **form)


def planned(server: Server, address: str, **given: str) -> str:
    """A run that is over; where the server leaves runs to workers, one is started."""
    page = start(server, address, **given)
    if server.environment.get("REDLINE_WORK_IN") == "worker":
        worker(server, page).wait()
    server.wait_for(lambda: is_over(server, page))
    return page


def is_over(server: Server, page: str) -> bool:
    return "ws-connect" not in server.get(page)


def worker(server: Server, page: str) -> subprocess.Popen[bytes]:
    """A process that works on this run alone."""
    command = [sys.executable, "-m", "redline", "worker", "--run", page.rsplit("/", 1)[1]]
    return subprocess.Popen(command, env=server.environment, cwd=server.root, stdout=subprocess.DEVNULL)


def worker_of(server: Server, page: str) -> int | None:
    """The process that works on a run, as the database knows it; None if that is not there, or the run is over."""
    query = "SELECT worker FROM compaction_app_run WHERE id = ? AND state = 'running'"
    with closing(sqlite3.connect(server.data / "redline.sqlite3")) as database:
        row = database.execute(query, (page.rsplit("/", 1)[1],)).fetchone()
    pid = row[0].split(":")[1] if row is not None else ""
    return int(pid) if pid and is_alive(pid) else None


def is_alive(pid: str) -> bool:
    """Whether there is a process that has not ended; one that ended and was not waited for has no command line."""
    try:
        return bool((Path("/proc") / pid / "cmdline").read_bytes())
    except OSError:
        return False


def undecided(server: Server, run: str) -> list[str]:
    """The keys of the proposals that the first window of a review leaves open, in its order."""
    return LEAD.findall(server.get(f"{run}/review"))


def decide(server: Server, run: str, **values: str) -> None:
    """One decision, as the form of the review sends it."""
    server.post(f"{run}/review", f"{run}/decide", **values)
