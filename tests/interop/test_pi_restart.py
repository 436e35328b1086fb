"""The real Redline is killed while real pi waits for a review: the question is still there when it runs again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devtools.scripted.server import ScriptedProvider
from tests.factories import working_session
from tests.interop.pi_rpc import Pi
from tests.interop.pi_runs import PROBE
from tests.interop.test_pi_handshake import answered, lines, message, was_summarised
from tests.interop.test_pi_review import CONFIRMED, connected_home, review, waiting_run
from tests.server import start_server
from tests.wait import wait_until

CONTINUES = "pi continues with the approved context; the session shows it."


@pytest.mark.parametrize("is_approved", [True, False], ids=["approved", "declined"])
def test_pi_goes_through_with_a_review_although_redline_was_killed(is_approved: bool, tmp_path: Path) -> None:
    root = tmp_path / "pi" / ".pi" / "agent" / "sessions"
    roots = json.dumps([{"path": str(root), "agent": "pi", "reader": "pi"}])
    with (
        ScriptedProvider(script="stops-early") as provider,
        start_server(tmp_path, roots=root, REDLINE_ROOTS=roots) as killed,
    ):
        home = connected_home("pi", tmp_path, killed, provider, window=10**9)
        recorded = (one["message"] for one in working_session(steps=30)[1:])
        known = answered("", 1_000)["message"]
        session = home.session(
            [message({**known, **one} if one["role"] == "assistant" else one) for one in recorded]
        )
        with Pi(home, session) as pi:
            compaction = pi.send("compact")
            run = waiting_run(pi)
            before = session.read_bytes()
            killed.child.kill()
            pi.first(lambda said: "Asking again" in str(said.get("statusText")))
            assert session.read_bytes() == before
            with start_server(tmp_path, roots=root, REDLINE_ROOTS=roots) as server:
                if is_approved:
                    review(server, run, rejects=False)
                    server.post(f"{run}/commit", f"{run}/commit", yes=CONFIRMED)
                else:
                    server.post("/handshakes/1", "/handshakes/1/decline", step="continue")
                assert not pi.response(compaction)["success"]
                wait_until(lambda: pi.shown("notify"), "pi did not say what became of it")
                assert (CONTINUES in pi.shown("notify")) is is_approved
                pi.prompt(PROBE)
        assert len(provider.requests) == 1
    assert bool(lines(session, "context_edit")) is is_approved
    assert session.read_bytes().startswith(before)
    assert not was_summarised(session)
