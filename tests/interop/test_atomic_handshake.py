"""Real Atomic with the bridge that it shares with pi: what differs. Redline is a stand-in, which decides."""

from pathlib import Path

import pytest

from tests.interop.install_atomic import NEW, OLD
from tests.interop.pi_rpc import FIRST, FULL, SECOND, Asking, AtomicHome, Pi, conversation, lines, words
from tests.interop.stand_in import CONTINUE, UNREACHED, VERIFIED, WAITING, StandIn
from tests.interop_clients.messages_server import said
from tests.wait import wait_until

TURNS = 40
"""Atomic compacts nothing shorter to text."""
DELETES = {"do": "apply", "state": "approved", "deletions": [{"kind": "entry", "entryId": SECOND}]}
"""An approved plan that deletes the first answer."""
LEFT = ["first question", "second question", "second answer", "go on"]
HONOURS = {OLD: "deletions", NEW: "nothing"}
old = pytest.mark.parametrize("version", [OLD])
new = pytest.mark.parametrize("version", [NEW])
both = pytest.mark.parametrize("version", [OLD, NEW])


@pytest.fixture
def asking(version, tmp_path, model):
    home = AtomicHome(tmp_path / "home", version, base_url=model.url)
    with StandIn(home.connection_file, "atomic") as redline:
        yield Asking(home, model, redline)


def long_session(asking: Asking, tokens: int = 1_000) -> Path:
    return asking.home.session([*conversation(500) * TURNS, *conversation(tokens)])


@pytest.fixture
def session(asking):
    return long_session(asking)


@pytest.mark.core
@old
def test_atomic_applies_the_approved_deletions_itself(asking):
    with asking.compacting() as atomic:
        question = asking.redline.questions[0]
        assert (question["agent"], question["version"], question["honours"]) == ("atomic", OLD, "deletions")
        asking.redline.answer = DELETES
        assert atomic.ended()["success"]
        (written,) = lines(asking.short, "context_compaction")
        assert written["deletedTargets"] == DELETES["deletions"]
        assert asking.redline.report() == {"outcome": "applied", "message": "", "leaf": written["id"]}
        atomic.wait_for_notice(VERIFIED)
        atomic.send("prompt", message="go on")
        wait_until(lambda: asking.model.requests)
    assert words(asking.model.requests[0]) == LEFT


@old
def test_at_the_threshold_the_waiting_prompt_is_sent_without_what_was_approved(asking):
    with asking.prompted():
        assert asking.redline.questions[0]["reason"] == "threshold"
        assert asking.model.requests == []
        asking.redline.answer = DELETES
        wait_until(lambda: asking.model.requests)
    assert words(asking.model.requests[0]) == LEFT


@old
def test_deletions_that_atomic_refuses_are_reported(asking):
    with asking.compacting() as atomic:
        asking.redline.answer = {**DELETES, "deletions": [{"kind": "entry", "entryId": FIRST}]}
        assert "protected" in atomic.ended()["error"]
        assert asking.redline.report()["outcome"] == "failed"
        atomic.wait_for_notice("The agent did not apply the approved plan.")
    assert lines(asking.short, "context_compaction") == []


@new
def test_escape_withdraws_the_question(asking, session):
    with asking.compacting(session) as atomic:
        atomic.send("abort_compaction")
        assert atomic.is_cancelled()
        assert asking.redline.report()["outcome"] == "withdrawn"


@both
def test_the_end_of_the_session_withdraws_the_question(asking, session):
    with asking.compacting(session) as atomic:
        atomic.close()
    assert asking.redline.report()["outcome"] == "withdrawn"


@both
def test_without_redline_atomic_compacts_as_usual(asking, session):
    asking.redline.stop()
    with asking.open(session) as atomic:
        atomic.send("compact")
        assert not atomic.is_cancelled()
        atomic.wait_for_notice(UNREACHED)
    assert asking.model.requests  # its own planner


@pytest.mark.core
@new
def test_the_new_generation_continues_without_compacting(asking, session):
    resume = "Approved as a new session. To continue in it: atomic --session fork.jsonl"
    with asking.compacting(session) as atomic:
        question = asking.redline.questions[0]
        assert (question["agent"], question["version"], question["honours"]) == ("atomic", NEW, "nothing")
        wait_until(lambda: atomic.shown("setStatus")[-1:] == [f"{WAITING} (10 min left)"])
        asking.redline.answer = {**CONTINUE, "message": resume}
        assert atomic.is_cancelled()
        atomic.wait_for_notice(resume)
    assert lines(session, "compaction") == []
    assert asking.model.requests == []


@new
def test_the_new_generation_cannot_apply_a_plan(asking, session):
    with asking.compacting(session) as atomic:
        asking.redline.answer = DELETES
        assert atomic.is_cancelled()
        assert asking.redline.report()["outcome"] == "failed"


@new
def test_the_new_generation_asks_at_the_threshold(asking):
    full = long_session(asking, FULL)
    with asking.prompted(full) as atomic:
        assert asking.redline.questions[0]["reason"] == "threshold"
        asking.redline.answer = CONTINUE
        wait_until(lambda: asking.model.requests)
        atomic.wait_for_notice(CONTINUE["message"])
    assert words(asking.model.requests[0])[-1] == "go on"


@old
def test_the_copy_of_pi_which_atomic_loads_too_does_not_ask(asking, tmp_path):
    pis = StandIn(tmp_path / "pis.json")
    copy = asking.home.directory / ".pi" / "agent" / "extensions" / "redline.ts"
    copy.parent.mkdir(parents=True)
    source = asking.home.bridge.read_text(encoding="utf-8")
    copy.write_text(source.replace(str(asking.home.connection_file), str(pis.connection_file)))
    assert isinstance(asking.home, AtomicHome)
    asking.home.more_extensions = [copy]
    asking.redline.answer = CONTINUE
    with pis, asking.open() as atomic:
        atomic.send("compact")
        assert atomic.is_cancelled()
    assert (pis.paths, len(asking.redline.questions)) == ([], 1)


@both
def test_atomic_asks_again_at_the_next_prompt(asking):
    full = long_session(asking, FULL)
    asking.redline.answer = CONTINUE
    with asking.open(full) as atomic:
        for _ in range(2):
            known, since = len(asking.redline.questions), len(atomic.said)
            asking.model.replies.append(said("done", input_tokens=FULL))
            atomic.send("prompt", message="go on")
            ended = atomic.first(lambda said: said["type"] == "agent_end", since)
            # It compares the context with the threshold after the run, too.
            atomic.first(lambda said: said["type"] == "compaction_end", atomic.said.index(ended))
            assert len(asking.redline.questions) > known


@both
def test_a_connection_is_tested_when_atomic_starts(asking, version):
    with Pi(asking.home, None, environment={"REDLINE_BRIDGE_TEST": "1"}):
        wait_until(lambda: asking.redline.questions)
    (test,) = asking.redline.questions
    expected = {"test": True, "agent": "atomic", "version": version, "honours": HONOURS[version]}
    assert {key: test[key] for key in expected} == expected
