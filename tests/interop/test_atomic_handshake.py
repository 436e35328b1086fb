"""Real Atomic with the bridge that it shares with pi: what differs. Redline is a stand-in, which decides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.install_atomic import NEW, OLD
from tests.interop.pi_rpc import AtomicHome, Pi
from tests.interop.stand_in import WAITING, StandIn
from tests.interop.test_pi_handshake import (
    CANCELLED,
    CONTINUE,
    FIRST,
    FULL,
    SECOND,
    conversation,
    lines,
    words,
)
from tests.interop.test_pi_handshake import model as model  # the fixture
from tests.interop_clients.messages_server import MessagesServer, said
from tests.wait import wait_until

TURNS = 40
"""Atomic compacts nothing shorter to text."""
DELETES = {
    "do": "apply",
    "state": "approved",
    "deletions": [{"kind": "entry", "entryId": SECOND}],
}
"""An approved plan that deletes the first answer."""
VERIFIED = "Redline verified the plan."


@pytest.fixture
def old(tmp_path: Path, model: MessagesServer) -> AtomicHome:
    return AtomicHome(tmp_path / "home", OLD, base_url=model.base_url)


@pytest.fixture
def new(tmp_path: Path, model: MessagesServer) -> AtomicHome:
    return AtomicHome(tmp_path / "home", NEW, base_url=model.base_url)


@pytest.fixture
def redline(tmp_path: Path) -> Iterator[StandIn]:
    (tmp_path / "home").mkdir(exist_ok=True)
    with StandIn(tmp_path / "home" / "connection.json", "atomic") as stand_in:
        yield stand_in


def long_session(home: AtomicHome, tokens: int = 1_000) -> Path:
    return home.session([*conversation(500) * TURNS, *conversation(tokens)])


def test_atomic_applies_the_approved_deletions_itself(
    old: AtomicHome, redline: StandIn, model: MessagesServer
) -> None:
    session = old.session(conversation())
    with Pi(old, session) as atomic:
        compaction = atomic.send("compact")
        question = redline.next_question()
        assert (question["agent"], question["version"], question["honours"]) == ("atomic", OLD, "deletions")
        redline.answer = DELETES
        assert atomic.response(compaction)["success"]
        (written,) = lines(session, "context_compaction")
        assert written["deletedTargets"] == DELETES["deletions"]
        assert redline.report() == {"outcome": "applied", "message": "", "leaf": written["id"]}
        wait_until(lambda: atomic.shown("notify") == [VERIFIED])
        atomic.send("prompt", message="go on")
        wait_until(lambda: model.requests)
    assert words(model.requests[0]) == ["first question", "second question", "second answer", "go on"]


def test_at_the_threshold_the_waiting_prompt_is_sent_without_what_was_approved(
    old: AtomicHome, redline: StandIn, model: MessagesServer
) -> None:
    with Pi(old, old.session(conversation(FULL))) as atomic:
        atomic.send("prompt", message="go on")
        assert redline.next_question()["reason"] == "threshold"
        assert model.requests == []
        redline.answer = DELETES
        wait_until(lambda: model.requests)
    assert words(model.requests[0]) == ["first question", "second question", "second answer", "go on"]


def test_deletions_that_atomic_refuses_are_reported(old: AtomicHome, redline: StandIn) -> None:
    session = old.session(conversation())
    with Pi(old, session) as atomic:
        compaction = atomic.send("compact")
        redline.next_question()
        redline.answer = {**DELETES, "deletions": [{"kind": "entry", "entryId": FIRST}]}
        assert "protected" in atomic.response(compaction)["error"]
        assert redline.report()["outcome"] == "failed"
        wait_until(lambda: atomic.shown("notify") == ["The agent did not apply the approved plan."])
    assert lines(session, "context_compaction") == []


def test_escape_withdraws_the_question(new: AtomicHome, redline: StandIn) -> None:
    with Pi(new, long_session(new)) as atomic:
        compaction = atomic.send("compact")
        redline.next_question()
        atomic.send("abort_compaction")
        assert atomic.response(compaction)["error"] == CANCELLED
        assert redline.report()["outcome"] == "withdrawn"


@pytest.mark.parametrize("version", [OLD, NEW])
def test_the_end_of_the_session_withdraws_the_question(
    version: str, redline: StandIn, model: MessagesServer, tmp_path: Path
) -> None:
    home = AtomicHome(tmp_path / "home", version, base_url=model.base_url)
    with Pi(home, long_session(home)) as atomic:
        atomic.send("compact")
        redline.next_question()
        atomic.close()
    assert redline.report()["outcome"] == "withdrawn"


@pytest.mark.parametrize("version", [OLD, NEW])
def test_without_redline_atomic_compacts_as_usual(
    version: str, redline: StandIn, model: MessagesServer, tmp_path: Path
) -> None:
    home = AtomicHome(tmp_path / "home", version, base_url=model.base_url)
    redline.stop()
    with Pi(home, long_session(home)) as atomic:
        assert CANCELLED not in json.dumps(atomic.run("compact"))
        assert atomic.shown("notify") == ["Redline was not reached. Compacting as usual."]
    assert model.requests  # its own planner


def test_the_new_generation_continues_without_compacting(
    new: AtomicHome, redline: StandIn, model: MessagesServer
) -> None:
    session = long_session(new)
    resume = "Approved as a new session. To continue in it: atomic --session fork.jsonl"
    with Pi(new, session) as atomic:
        compaction = atomic.send("compact")
        question = redline.next_question()
        assert (question["agent"], question["version"], question["honours"]) == ("atomic", NEW, "nothing")
        wait_until(lambda: atomic.shown("setStatus")[-1:] == [f"{WAITING} (10 min left)"])
        redline.answer = {**CONTINUE, "message": resume}
        assert atomic.response(compaction)["error"] == CANCELLED
        wait_until(lambda: atomic.shown("notify") == [resume])
    assert lines(session, "compaction") == []
    assert model.requests == []


def test_the_new_generation_cannot_apply_a_plan(new: AtomicHome, redline: StandIn) -> None:
    with Pi(new, long_session(new)) as atomic:
        compaction = atomic.send("compact")
        redline.next_question()
        redline.answer = DELETES
        assert atomic.response(compaction)["error"] == CANCELLED
        assert redline.report()["outcome"] == "failed"


def test_the_new_generation_asks_at_the_threshold(
    new: AtomicHome, redline: StandIn, model: MessagesServer
) -> None:
    with Pi(new, long_session(new, FULL)) as atomic:
        atomic.send("prompt", message="go on")
        assert redline.next_question()["reason"] == "threshold"
        redline.answer = CONTINUE
        wait_until(lambda: model.requests)
        wait_until(lambda: atomic.shown("notify") == [CONTINUE["message"]])
    assert words(model.requests[0])[-1] == "go on"


def test_the_copy_of_pi_which_atomic_loads_too_does_not_ask(
    old: AtomicHome, redline: StandIn, tmp_path: Path
) -> None:
    pis = StandIn(tmp_path / "pis.json")
    copy = old.directory / ".pi" / "agent" / "extensions" / "redline.ts"
    copy.parent.mkdir(parents=True)
    source = old.bridge.read_text(encoding="utf-8")
    copy.write_text(source.replace(str(old.connection_file), str(pis.connection_file)), encoding="utf-8")
    old.more_extensions = [copy]
    redline.answer = CONTINUE
    with pis, Pi(old, old.session(conversation())) as atomic:
        assert atomic.run("compact")["error"] == CANCELLED
    assert (pis.paths, len(redline.questions)) == ([], 1)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_atomic_asks_again_at_the_next_prompt(
    version: str, redline: StandIn, model: MessagesServer, tmp_path: Path
) -> None:
    home = AtomicHome(tmp_path / "home", version, base_url=model.base_url)
    redline.answer = CONTINUE
    with Pi(home, long_session(home, FULL)) as atomic:

        def prompt() -> int:
            """Prompt, and wait until Atomic is done; returns how many questions there were."""
            known, since = len(redline.questions), len(atomic.said)
            model.replies.append(said("done", input_tokens=FULL))
            atomic.send("prompt", message="go on")
            ended = atomic.first(lambda said: said["type"] == "agent_end", since)
            # It compares the context with the threshold after the run, too.
            atomic.first(lambda said: said["type"] == "compaction_end", atomic.said.index(ended))
            return len(redline.questions) - known

        assert prompt()
        assert prompt()


@pytest.mark.parametrize(("version", "honours"), [(OLD, "deletions"), (NEW, "nothing")])
def test_a_connection_is_tested_when_atomic_starts(
    version: str, honours: str, redline: StandIn, model: MessagesServer, tmp_path: Path
) -> None:
    home = AtomicHome(tmp_path / "home", version, base_url=model.base_url)
    with Pi(home, None, environment={"REDLINE_BRIDGE_TEST": "1"}):
        wait_until(lambda: redline.questions)
    (test,) = redline.questions
    assert (test["test"], test["agent"], test["version"], test["honours"]) == (
        True,
        "atomic",
        version,
        honours,
    )
