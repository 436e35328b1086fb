"""OpenCode asks the real Redline, and its next request has exactly the context that was approved.

Each plan is reviewed in another way: some proposals are rejected, everything else is approved. Half of the questions
come at a threshold, in the middle of a turn, which continues with the approved context.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from sessions_app.sessionlog.targets import Target
from sessions_app.storage.session_loader import load_session
from tests.browser.scenarios import approve_everything, decide, undecided_keys
from tests.installation import Installation
from tests.opencode_plans import WRITERS, approved_by
from tests.server import Server, start_server

from .installed import client_program
from .opencode_runs import OpencodeRuns
from .scripted_model import ModelReply, ScriptedModel
from .test_hook_reviews import CONFIRMED, applied_targets, waiting_run
from .test_opencode import VERSION, shell
from .test_opencode_handshake import FULL, WINDOW, AskingOpenCode, called

PLANS: Final = 20
OUTPUT: Final = "word " * 400
"""What tools print: long enough to be deleted."""


@pytest.fixture
def runs(tmp_path: Path, model: ScriptedModel) -> OpencodeRuns:
    return OpencodeRuns(client_program("opencode", VERSION), tmp_path / "client", model, window=WINDOW)


@pytest.fixture
def server(runs: OpencodeRuns, tmp_path: Path) -> Iterator[Server]:
    """A server in the home of the client, which is connected as a person does it."""
    runs.data.mkdir(parents=True)
    roots = json.dumps([{"path": str(runs.data), "agent": "opencode"}])
    with start_server(tmp_path, roots=runs.data, REDLINE_ROOTS=roots, HOME=str(runs.scratch.home)) as started:
        path = os.pathsep.join([str(client_program("opencode", VERSION).parent), os.environ["PATH"]])
        ended = Installation(started.data, runs.scratch.home).run("connect", "opencode", "--yes", PATH=path)
        assert ended.code == 0, ended
        yield started


def worked(opencode: AskingOpenCode, chance: random.Random) -> None:
    """Turns with calls of tools, and long outputs."""
    for turn in range(chance.randint(2, 4)):
        calls = [
            shell(f"w{turn}{step}", f"echo {turn} {step} {OUTPUT}") for step in range(chance.randint(1, 4))
        ]
        replies = [ModelReply(f"Step {one.call_id}.", calls=[one]) for one in calls]
        opencode.prompt(f"turn {turn}", *replies, ModelReply(f"Turn {turn} is done."))


def approve(server: Server, run: str, chance: random.Random) -> float:
    """Decide on all proposals of a run, and let the agent continue; when that was."""
    keys = undecided_keys(server, run)
    for key in chance.sample(keys, min(len(keys) // 2, chance.randint(0, 2))):
        decide(server, run, reject=key)
    approve_everything(server, run)
    approved = time.monotonic()
    shown = server.post(f"{run}/commit", f"{run}/commit", yes=CONFIRMED)
    assert shown.startswith("/handshakes/"), server.text(f"{run}/commit")
    return approved


def test_opencode_continues_with_what_was_approved(
    runs: OpencodeRuns, server: Server, model: ScriptedModel
) -> None:
    chance = random.Random(16)
    waits: list[tuple[float, float]] = []
    with runs.served() as served, ThreadPoolExecutor(1) as pool:
        for number in range(PLANS):
            opencode = AskingOpenCode(runs, served, model)
            worked(opencode, chance)
            known, is_manual = len(model.conversation), number % 2 == 0
            asked: Future[Any] = Future()
            began = time.monotonic()
            if is_manual:
                asked = pool.submit(opencode.compact)
            else:
                opencode.begin("go on", called("full", FULL), ModelReply("done"))
            run = waiting_run(server, asked)
            assert "data-key" in server.get(f"{run}/review")
            seen = time.monotonic()
            source = load_session(runs.copied() / opencode.session)
            approved = approve(server, run, chance)
            targets: tuple[Target, ...] = tuple(applied_targets(server))
            assert targets
            wanted = approved_by(source, WRITERS["delete"], targets)
            if is_manual:
                asked.result()
                assert len(model.conversation) == known, "nothing was compacted"
                opencode.prompt("and now?")
                sent = model.conversation[-1]["messages"][1:-1]
            else:
                opencode.wait_for_requests(known + 2)
                sent = model.conversation[-1]["messages"][1:]
                waits.append((seen - began, time.monotonic() - approved))
            assert sent == wanted, (number, targets)
            assert wanted != approved_by(source, WRITERS["delete"], ())
            assert not opencode.is_compacted
    to_proposals, to_request = (max(times) for times in zip(*waits, strict=True))
    print(
        f"\nopencode {VERSION}: {PLANS} plans, all as approved; {to_proposals:.2f} s to the proposals and "
        f"{to_request:.2f} s to the next request at most"
    )
