"""Real pi, real Atomic and Redline: what is approved in the browser while they wait is exactly what they send next.

Each session is reviewed in another way: everything is approved, or some proposals are rejected. Half of the questions
come at a threshold: then the prompt that waited is sent with the approved context.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from compaction_app.changes.proof import approved_messages
from compaction_app.scripted.server import ScriptedProvider
from sessions_app.server.connection_files import ConnectedAgent, connection_path, new_secret, write_connection
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Target
from sessions_app.storage.session_loader import load_session
from tests.browser.scenarios import approve_everything, decide, run_number, undecided_keys
from tests.interop.install_atomic import OLD
from tests.interop.pi_rpc import AtomicHome, Pi, PiHome, lines, was_summarised, work
from tests.interop.pi_runs import PROBE, atomic_command, difference, expected, said_in
from tests.interop.pi_sessions import WRITABLE, context_of, copy_of, each_writable, fields_of
from tests.interop_clients.reviewing import CONFIRMED, rows
from tests.server import Server, start_server
from tests.wait import wait_until

REVIEW = re.compile(r"waits for your review: \S+?(/plans/\d+)")
CONTINUES = "continues with the approved context; the session shows it."
READERS_IN_FORCE = {"pi": "pi", "atomic": "atomic-0.8"}
"""The agents that apply plans, and how they rebuild contexts."""


@contextmanager
def server_for(agent: str, base: Path) -> Iterator[Server]:
    """A server of its own: the root and the agent's home are below `base`."""
    root = base / agent / f".{agent}" / "agent" / "sessions"
    roots = json.dumps([{"path": str(root), "agent": agent, "reader": READERS_IN_FORCE[agent]}])
    with start_server(base, roots=root, REDLINE_ROOTS=roots) as started:
        yield started


def connected_home(
    agent: str, base: Path, server: Server, provider: ScriptedProvider, *, window: int = 10**9
) -> PiHome:
    """A home whose agent is connected with the server."""
    made_at = datetime.now(UTC)
    write_connection(server.data, ConnectedAgent(agent, agent, server.plain, new_secret(), bridge=1, made_at=made_at))
    options: dict[str, Any] = {"base_url": provider.base_url("openai"), "api": "openai-completions", "window": window}
    options["connection_file"] = connection_path(server.data, agent)
    return PiHome(base / agent, **options) if agent == "pi" else AtomicHome(base / agent, OLD, **options)


def waiting_run(pi: Pi) -> str:
    """The address of the run whose review pi waits for."""
    said = pi.first(lambda said: REVIEW.search(str(said.get("statusText"))))
    found = REVIEW.search(said["statusText"])
    assert found is not None
    return found[1]


def review(server: Server, run: str, *, rejects: bool = False) -> str:
    """Decide on all proposals, and commit; returns the address of the result."""
    if rejects:
        for key in undecided_keys(server, run)[::3]:
            decide(server, run, reject=key)
    approve_everything(server, run)
    return server.post(f"{run}/confirm", f"{run}/confirm", yes=CONFIRMED)


def approved_targets(server: Server, run: str) -> list[Target]:
    """What Redline has recorded as approved for the agent that waited for this run."""
    query = "SELECT note FROM compaction_app_handshake WHERE run_id = ?"
    ((note,),) = rows(server, query, run_number(run))
    return [Target(origin["entryId"], origin.get("blockIndex")) for origin in json.loads(note)["origins"]]


@pytest.mark.parametrize("agent", READERS_IN_FORCE)
@each_writable
def test_the_agent_sends_exactly_what_was_approved(name, agent, sessions, provider, tmp_path):
    if agent == "atomic":
        atomic_command(OLD)  # it may not be installed
    number, reader = WRITABLE.index(name), READERS_IN_FORCE[agent]
    at_threshold = number % 2 == 1
    with server_for(agent, tmp_path) as server:
        window = 8_000 if at_threshold else 10**9
        home = connected_home(agent, tmp_path, server, provider, window=window)
        session = copy_of(sessions[name], home.sessions, home.project)
        known = len(provider.requests)
        with Pi(home, session) as pi:
            pi.send("prompt", message=PROBE) if at_threshold else pi.send("compact")
            run = waiting_run(pi)
            assert "data-key" in server.get(run)
            loaded = load_session(session)
            before = context_of(loaded, reader)
            whole = expected(fields_of(loaded, before.messages))
            assert len(provider.requests) == known
            result = review(server, run, rejects=number % 3 == 0)
            if not at_threshold:
                # pi has cancelled the compaction, and Atomic has made it.
                assert pi.ended()["success"] == (agent == "atomic")
                pi.send("prompt", message=PROBE)
            (request, *_) = provider.wait_for(lambda: provider.requests[known:])
            sent = said_in(json.loads(request.raw)["messages"])
            server.wait_for(lambda: CONTINUES in server.text(result))
            targets = approved_targets(server, run)
            left = ActiveContext(reader, tuple(approved_messages(before, targets)), None)
            wanted = expected(fields_of(loaded, left.messages))
    assert difference(sent, wanted) == ""
    assert difference(sent, whole) != ""


@pytest.mark.parametrize("is_approved", [True, False], ids=["approved", "declined"])
def test_pi_goes_through_with_a_review_although_redline_was_killed(is_approved, provider, tmp_path):
    """The server is killed while real pi waits: the question is still there when it runs again."""
    known = len(provider.requests)
    with server_for("pi", tmp_path) as killed:
        home = connected_home("pi", tmp_path, killed, provider)
        session = home.session(work(30))
        with Pi(home, session) as pi:
            pi.send("compact")
            run = waiting_run(pi)
            before = session.read_bytes()
            killed.child.kill()
            pi.first(lambda said: "Asking again" in str(said.get("statusText")))
            assert session.read_bytes() == before
            with server_for("pi", tmp_path) as server:
                if is_approved:
                    review(server, run)
                else:
                    server.post("/inbox/agents/1", "/inbox/agents/1/decline", step="continue")
                assert not pi.ended()["success"]
                wait_until(lambda: pi.shown("notify"), "pi did not say what became of it")
                assert (f"pi {CONTINUES}" in pi.shown("notify")) is is_approved
                pi.prompt(PROBE)
        assert len(provider.requests) == known + 1
    assert bool(lines(session, "context_edit")) is is_approved
    assert session.read_bytes().startswith(before)
    assert not was_summarised(session)
