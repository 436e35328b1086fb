"""Real pi, real Atomic and Redline: what is approved in the browser while they wait is exactly what they send next.

The sessions are those of the corpus that pi can continue; without one, a generated session. Each is reviewed in another
way: everything is approved, or some proposals are rejected. Half of the questions come at a threshold: then the prompt
that waited is sent with the approved context.
"""

from __future__ import annotations

import json
import re
import sqlite3
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from compaction_app.commit.proof import approved_messages
from devtools.scripted.server import ScriptedProvider
from sessions_app.connections.connection_files import (
    ConnectedAgent,
    connection_path,
    keep_connection,
    new_secret,
)
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.targets import Target
from sessions_app.storage.session_loader import load_session
from tests.browser.scenarios import approve_everything, decide, run_number, undecided_keys
from tests.files import backdate, place
from tests.interop.install_atomic import OLD
from tests.interop.pi_rpc import AtomicHome, Pi, PiHome, atomic_command
from tests.interop.pi_runs import PROBE, difference, expected, said_in
from tests.interop.test_pi import WRITABLE, context_of, fields_of
from tests.paths import corpus_sessions
from tests.server import Server, start_server
from tests.wait import WAIT_SECONDS

REVIEW = re.compile(r"waits for your review: \S+?(/runs/\d+)/review")
APPLIED = "continues with the approved context; the session shows it."
READERS_IN_FORCE = {"pi": "pi", "atomic": "atomic-0.8"}
"""The agents that apply plans, and how they rebuild contexts."""
CONFIRMED = ["live", "not_honoured", "below_target"]


@dataclass
class Figures:
    """Seconds that people wait."""

    proposals: dict[str, float] = field(default_factory=dict)
    """From pi's question to its proposals in the review."""
    requests: dict[str, float] = field(default_factory=dict)
    """From the approval to pi's next request."""


@pytest.fixture(scope="module")
def figures() -> Iterator[Figures]:
    measured = Figures()
    yield measured
    for what, seconds in (("proposals", measured.proposals), ("requests", measured.requests)):
        if seconds:
            slowest = max(seconds, key=lambda name: seconds[name])
            print(
                f"\n{what}: {len(seconds)}, median {statistics.median(seconds.values()):.2f} s, "
                f"slowest {seconds[slowest]:.2f} s ({slowest})"
            )


@pytest.fixture(scope="session")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(script="stops-early") as scripted:
        yield scripted


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {path.name: path for path in corpus_sessions(tmp_path_factory.mktemp("corpus"))}


@pytest.fixture(params=READERS_IN_FORCE)
def agent(request: pytest.FixtureRequest) -> str:
    if request.param == "atomic":
        atomic_command(OLD)  # it may not be installed
    return str(request.param)


@pytest.fixture
def server(agent: str, tmp_path: Path) -> Iterator[Server]:
    root = tmp_path / agent / f".{agent}" / "agent" / "sessions"
    roots = json.dumps([{"path": str(root), "agent": agent, "reader": READERS_IN_FORCE[agent]}])
    with start_server(tmp_path, roots=root, REDLINE_ROOTS=roots) as started:
        yield started


def connected_home(
    agent: str, base: Path, server: Server, provider: ScriptedProvider, *, window: int
) -> PiHome:
    """A home whose agent is connected with the server."""
    made_at = datetime.now(UTC)
    keep_connection(
        server.data, ConnectedAgent(agent, agent, server.plain, new_secret(), bridge=1, made_at=made_at)
    )
    options: dict[str, Any] = {
        "base_url": provider.base_url("openai"),
        "api": "openai-completions",
        "window": window,
        "connection_file": connection_path(server.data, agent),
    }
    return PiHome(base / agent, **options) if agent == "pi" else AtomicHome(base / agent, OLD, **options)


def copy_of(session: Path, home: PiHome) -> Path:
    header, rest = session.read_bytes().split(b"\n", 1)
    described = {**json.loads(header), "cwd": str(home.project)}
    return backdate(place(home.sessions / session.name, json.dumps(described).encode() + b"\n" + rest))


def waiting_run(pi: Pi) -> str:
    """The address of the run whose review pi waits for."""
    said = pi.first(lambda said: REVIEW.search(str(said.get("statusText"))))
    found = REVIEW.search(said["statusText"])
    assert found is not None
    return found[1]


def review(server: Server, run: str, *, rejects: bool) -> None:
    """Decide on all proposals."""
    if rejects:
        for key in undecided_keys(server, run)[::3]:
            decide(server, run, reject=key)
    approve_everything(server, run)


def approved_targets(server: Server, run: str) -> list[Target]:
    """What Redline has recorded as approved for the agent that waited for this run."""
    query = "SELECT note FROM compaction_app_handshake WHERE run_id = ?"
    with closing(sqlite3.connect(server.data / "redline.sqlite3", timeout=WAIT_SECONDS)) as database:
        ((note,),) = database.execute(query, (run_number(run),)).fetchall()
    return [Target(origin["entryId"], origin.get("blockIndex")) for origin in json.loads(note)["origins"]]


@pytest.mark.parametrize("number", range(len(WRITABLE)), ids=WRITABLE)
def test_the_agent_sends_exactly_what_was_approved(
    number: int,
    agent: str,
    sessions: dict[str, Path],
    provider: ScriptedProvider,
    server: Server,
    tmp_path: Path,
    figures: Figures,
) -> None:
    name = WRITABLE[number]
    measured = f"{agent}, {name}"
    at_threshold = number % 2 == 1
    home = connected_home(agent, tmp_path, server, provider, window=8_000 if at_threshold else 10**9)
    session = copy_of(sessions[name], home)
    known = len(provider.requests)
    with Pi(home, session) as pi:
        first = pi.send("prompt", message=PROBE) if at_threshold else pi.send("compact")
        pi.first(lambda said: said["type"] == "compaction_start")
        asked = time.monotonic()
        run = waiting_run(pi)
        assert "data-key" in server.get(f"{run}/review")
        figures.proposals[measured] = time.monotonic() - asked

        review(server, run, rejects=number % 3 == 0)
        loaded = load_session(session)
        before = context_of(loaded, READERS_IN_FORCE[agent])
        whole = expected(fields_of(loaded, before.messages))
        assert len(provider.requests) == known

        approved = time.monotonic()
        result = server.post(f"{run}/commit", f"{run}/commit", yes=CONFIRMED)
        if not at_threshold:
            # pi has cancelled the compaction, and Atomic has made it.
            assert pi.response(first)["success"] == (agent == "atomic")
            pi.send("prompt", message=PROBE)
        (request, *_) = provider.wait_for(lambda: provider.requests[known:])
        figures.requests[measured] = time.monotonic() - approved
        sent = said_in(json.loads(request.raw)["messages"])
        server.wait_for(lambda: APPLIED in server.text(result))
        targets = approved_targets(server, run)
        left = ActiveContext(before.reader, tuple(approved_messages(before, targets)), None)
        wanted = expected(fields_of(loaded, left.messages))
    assert difference(sent, wanted) == ""
    assert difference(sent, whole) != ""
