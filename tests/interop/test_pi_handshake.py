"""Real pi with Redline's bridge: it asks before it compacts, and continues with exactly what was approved.

Redline is a stand-in here, which decides what the test decides. test_pi_review.py does the same with Redline itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.pi.records import UNDO
from tests import factories
from tests.interop import pi_rpc
from tests.interop.install_atomic import OLD
from tests.interop.install_pi import PINNED
from tests.interop.pi_rpc import WINDOW, Pi, PiHome
from tests.interop.stand_in import PATH, WAIT, WAITING, Answer, StandIn, edits_of
from tests.interop_clients.messages_server import MessagesServer, ScriptedReply, call_block, said
from tests.wait import WAIT_SECONDS, wait_until

COMPACT = {"do": "compact", "state": "declined", "message": "Declined. pi compacts as usual."}
CONTINUE = {"do": "continue", "state": "declined", "message": "Nothing was compacted."}
STOP = {"do": "stop", "state": "expired", "message": "Nobody reviewed the plan in time."}
FIRST, SECOND, THIRD, FOURTH = (f"e{number:07}" for number in range(4))
"""The ids of the messages of the session."""
CANCELLED = "Compaction cancelled"
OVERFLOW = "prompt is too long: 30000 tokens > 20000 maximum"


def message(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "message": {"timestamp": 1_767_600_000_000, **fields}}


def answered(words: str, tokens: int) -> dict[str, Any]:
    """An answer of the model, with the tokens of its request."""
    usage = {"input": tokens, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": tokens}
    cost = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0)
    by = {"api": "anthropic-messages", "provider": "scripted", "model": "talk"}
    return message({**factories.assistant(factories.text(words)), **by, "usage": {**usage, "cost": cost}})


def conversation(tokens: int = 1_000) -> list[dict[str, Any]]:
    """Two questions and their answers; the last request had so many tokens."""
    return [
        message(factories.user("first question")),
        answered("first answer", 100),
        message(factories.user("second question")),
        answered("second answer", tokens),
    ]


FULL = WINDOW - 1_000
"""Tokens at which pi compacts automatically."""
FULL_DISK = """
export default (pi) => pi.on("session_start", (_event, { sessionManager }) => {
  const append = sessionManager.appendContextEdit.bind(sessionManager);
  let count = 0;
  sessionManager.appendContextEdit = (...edit) => {
    if (++count === 2) throw new Error("ENOSPC: no space left on device");
    return append(...edit);
  };
});
"""
"""An extension that makes the second edit of a session fail."""


@pytest.fixture
def model() -> Iterator[MessagesServer]:
    with MessagesServer() as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, model: MessagesServer) -> PiHome:
    return PiHome(tmp_path / "home", base_url=model.base_url)


@pytest.fixture
def redline(home: PiHome) -> Iterator[StandIn]:
    with StandIn(home.connection_file) as stand_in:
        yield stand_in


@pytest.fixture
def full(home: PiHome) -> Path:
    """A session whose next prompt makes pi compact."""
    return home.session(conversation(FULL))


@pytest.fixture
def short(home: PiHome) -> Path:
    """A session that pi compacts only if it is asked to."""
    return home.session(conversation())


def lines(session: Path, kind: str) -> list[dict[str, Any]]:
    return [one for one in map(json.loads, session.read_text().splitlines()) if one["type"] == kind]


def words(request: dict[str, Any]) -> list[str]:
    """The texts of a request, without the instructions."""
    contents = [one["content"] for one in request["messages"]]
    blocks = [[{"text": one}] if isinstance(one, str) else one for one in contents]
    return ["".join(block["text"] for block in content) for content in blocks]


def was_summarised(session: Path) -> bool:
    return bool(lines(session, "compaction"))


# ---- a manual compaction -----------------------------------------------------------------------------------------


def test_the_question_describes_the_session_as_pi_has_it(redline: StandIn, home: PiHome, short: Path) -> None:
    with Pi(home, short) as pi:
        pi.send("compact", customInstructions="keep the decisions")
        question = redline.next_question()
    entries = [json.loads(line) for line in short.read_text().splitlines()[1:]]
    digest = hashlib.sha256("".join(f"{entry['id']}\n" for entry in entries).encode()).hexdigest()
    preparation = question.pop("preparation")
    assert question == {
        "agent": "pi",
        "version": PINNED,
        "bridge": 1,
        "session": str(short),
        "reason": "manual",
        "honours": "edits",
        "leaf": entries[-1]["id"],
        "branch": {"entries": len(entries), "sha256": digest},
    }
    assert preparation["instructions"] == "keep the decisions"
    assert preparation["contextWindow"] == WINDOW


def test_pi_continues_with_what_was_approved(
    redline: StandIn, home: PiHome, short: Path, model: MessagesServer
) -> None:
    with Pi(home, short) as pi:
        compaction = pi.send("compact")
        redline.next_question()
        redline.answer = edits_of((FIRST, None), (SECOND, [factories.text("shortened")]))
        assert pi.response(compaction)["error"] == CANCELLED
        report = redline.report()
        assert report == {"outcome": "applied", "message": "", "leaf": lines(short, "context_edit")[-1]["id"]}
        assert pi.shown("setStatus") == ["Redline: preparing the review", f"{WAITING} (10 min left)", ""]
        assert pi.shown("notify") == ["Redline verified the plan."]
        pi.prompt("go on")
    assert words(model.requests[0]) == ["shortened", "second question", "second answer", "go on"]
    assert not was_summarised(short)


@pytest.mark.parametrize(
    ("decision", "compacts"),
    [(COMPACT, True), (CONTINUE, False), (STOP, False)],
    ids=lambda one: str(one)[:20],
)
def test_pi_does_what_was_decided_instead(
    redline: StandIn, home: PiHome, short: Path, decision: dict[str, Any], compacts: bool
) -> None:
    with Pi(home, short) as pi:
        compaction = pi.send("compact")
        redline.next_question()
        redline.answer = decision
        assert pi.response(compaction)["success"] == compacts
        assert pi.shown("notify") == [decision["message"]]
    assert was_summarised(short) == compacts
    assert redline.reports == []


def test_ten_minutes_of_waiting(redline: StandIn, home: PiHome, short: Path) -> None:
    # A minute passes with 20 polls: the bridge has no clock of its own that matters.
    redline.answer_to = lambda polls: {**WAIT, "seconds": 600 - 3 * polls} if polls < 200 else COMPACT
    with Pi(home, short) as pi:
        assert pi.run("compact")["success"]
        shown = pi.shown("setStatus")
    assert redline.polls == 200
    minutes = [f"{WAITING} ({minute} min left)" for minute in range(10, 1, -1)]
    assert [one for one in shown if "min left" in one] == minutes
    assert len(shown) < 25
    assert was_summarised(short)


def test_escape_withdraws_the_question(redline: StandIn, home: PiHome, short: Path) -> None:
    with Pi(home, short) as pi:
        compaction = pi.send("compact")
        redline.next_question()
        pi.send("abort")
        assert pi.response(compaction)["error"] == CANCELLED
        assert redline.report()["outcome"] == "withdrawn"
        redline.answer = COMPACT
        assert pi.run("compact")["success"]
    assert len(redline.questions) == 2


def test_the_end_of_the_session_withdraws_the_question(redline: StandIn, home: PiHome, short: Path) -> None:
    with Pi(home, short) as pi:
        pi.send("compact")
        redline.next_question()
        assert pi.close() == 0
    assert redline.report()["outcome"] == "withdrawn"
    assert not was_summarised(short)


def test_two_agents_ask_at_once(redline: StandIn, home: PiHome) -> None:
    sessions = [home.session(conversation(), name) for name in ("one", "other")]
    with Pi(home, sessions[0]) as one, Pi(home, sessions[1]) as other:
        compactions = [pi.send("compact") for pi in (one, other)]
        redline.next_question(2)
        redline.answer = edits_of((FIRST, None))
        for pi, compaction in zip((one, other), compactions, strict=True):
            assert pi.response(compaction)["error"] == CANCELLED
    assert {question["session"] for question in redline.questions} == set(map(str, sessions))
    assert [len(lines(session, "context_edit")) for session in sessions] == [1, 1]


def test_a_second_copy_of_the_bridge_does_not_ask_again(redline: StandIn, home: PiHome, short: Path) -> None:
    (home.bridge.with_name("again.ts")).write_bytes(home.bridge.read_bytes())
    redline.answer = COMPACT
    with Pi(home, short) as pi:
        assert pi.run("compact")["success"]
    assert len(redline.questions) == 1


# ---- automatic compactions ---------------------------------------------------------------------------------------


def test_at_the_threshold_the_waiting_prompt_continues_with_what_was_approved(
    redline: StandIn, home: PiHome, full: Path, model: MessagesServer
) -> None:
    with Pi(home, full) as pi:
        pi.send("prompt", message="go on")
        assert redline.next_question()["reason"] == "threshold"
        assert model.requests == []
        redline.answer = edits_of((FIRST, None), (SECOND, None))
        pi.first(lambda said: said["type"] == "agent_settled")
    assert words(model.requests[0]) == ["second question", "second answer", "go on"]
    assert len(model.requests) == len(redline.questions) == 1


def test_after_an_overflow_the_request_is_repeated_with_what_was_approved(
    redline: StandIn, home: PiHome, short: Path, model: MessagesServer
) -> None:
    model.replies += [ScriptedReply(status=400, error=OVERFLOW), said("now it fits")]
    with Pi(home, short) as pi:
        pi.send("prompt", message="go on")
        assert redline.next_question()["reason"] == "overflow"
        redline.answer = edits_of((FIRST, None), (SECOND, None))
        pi.first(lambda said: said["type"] == "agent_settled")
    whole, edited = map(words, model.requests)
    assert whole == ["first question", "first answer", "second question", "second answer", "go on"]
    assert edited == ["second question", "second answer", "go on"]
    assert not was_summarised(short)


def called(tokens: int) -> ScriptedReply:
    """A reply that calls a tool, so that another request of the same run follows."""
    return ScriptedReply([call_block("toolu_1", "bash", command="true")], {"input_tokens": tokens})


@pytest.mark.parametrize(
    ("decision", "edits"),
    [(CONTINUE, 0), (edits_of((FIRST, None)), 1)],
    ids=["without compacting", "with what was approved"],
)
@pytest.mark.parametrize("at_last", [FULL, WINDOW + 1_000], ids=["threshold", "overflow"])
def test_pi_continues_above_the_threshold_and_asks_once_in_a_run(
    redline: StandIn,
    home: PiHome,
    full: Path,
    model: MessagesServer,
    decision: Answer,
    edits: int,
    at_last: int,
) -> None:
    model.replies += [called(FULL), called(FULL), said("done", input_tokens=at_last)]
    redline.answer_to = lambda polls: decision if polls else WAIT
    with Pi(home, full) as pi:
        pi.prompt("go on")
        assert len(redline.questions) == 1
        assert len(model.requests) == 3
        assert len(lines(full, "context_edit")) == edits
        redline.answer_to = lambda _polls: CONTINUE
        pi.prompt("and on")
    assert len(redline.questions) == 2
    assert not was_summarised(full)


def test_pi_asks_again_in_a_run_whose_context_was_shorter_meanwhile(
    redline: StandIn, home: PiHome, full: Path, model: MessagesServer
) -> None:
    model.replies += [called(FULL), called(100), called(FULL), said("done", input_tokens=FULL)]
    redline.answer_to = lambda polls: edits_of((FIRST, None)) if polls == 1 else CONTINUE if polls else WAIT
    with Pi(home, full) as pi:
        pi.prompt("go on")
    assert [question["reason"] for question in redline.questions] == ["threshold", "threshold"]
    assert len(model.requests) == 4
    assert not was_summarised(full)


def test_an_overflow_after_an_applied_plan_is_another_question(
    redline: StandIn, home: PiHome, full: Path, model: MessagesServer
) -> None:
    model.replies += [ScriptedReply(status=400, error=OVERFLOW), said("now it fits")]
    plans = [edits_of((FIRST, None)), edits_of((SECOND, None))]
    redline.answer_to = lambda _polls: plans[len(redline.questions) - 1]
    with Pi(home, full) as pi:
        pi.prompt("go on")
    assert [question["reason"] for question in redline.questions] == ["threshold", "overflow"]
    assert words(model.requests[-1]) == ["second question", "second answer", "go on"]
    assert not was_summarised(full)


def test_a_request_that_pi_repeats_after_an_error_is_of_the_same_run(
    redline: StandIn, home: PiHome, full: Path, model: MessagesServer
) -> None:
    model.replies += [ScriptedReply(status=529, error="overloaded_error"), said("done", input_tokens=FULL)]
    redline.answer = edits_of((FIRST, None))
    with Pi(home, full) as pi:
        pi.prompt("go on")
    assert len(model.requests) == 2
    assert len(redline.questions) == 1


def test_a_stopped_turn_sends_nothing(
    redline: StandIn, home: PiHome, full: Path, model: MessagesServer
) -> None:
    redline.answer = STOP
    with Pi(home, full) as pi:
        pi.prompt("go on")
        assert pi.shown("notify") == [STOP["message"]]
        assert model.requests == []
        redline.answer = CONTINUE
        pi.prompt("and on")
    assert len(model.requests) == 1


# ---- Redline is gone ---------------------------------------------------------------------------------------------


def test_without_redline_pi_compacts_as_usual(redline: StandIn, home: PiHome, short: Path) -> None:
    redline.stop()
    with Pi(home, short) as pi:
        assert pi.run("compact")["success"]
        assert pi.shown("notify") == ["Redline was not reached. Compacting as usual."]


def test_without_a_connection_file_pi_compacts_as_usual(redline: StandIn, home: PiHome, short: Path) -> None:
    home.connection_file.unlink()
    with Pi(home, short) as pi:
        assert pi.run("compact")["success"]
        assert pi.shown("notify") == pi.shown("setStatus") == []
    assert redline.paths == []


def test_an_error_at_first_is_shown_and_pi_compacts_as_usual(
    redline: StandIn, home: PiHome, short: Path
) -> None:
    redline.refusal = (409, "Redline does not know\x1b[2J this session.")
    with Pi(home, short) as pi:
        assert pi.run("compact")["success"]
        (shown,) = pi.shown("notify")
    assert shown == "Redline does not know [2J this session. Compacting as usual."
    assert redline.paths == [PATH]


def kill(redline: StandIn, _home: PiHome) -> None:
    redline.stop()


def fail(redline: StandIn, _home: PiHome) -> None:
    redline.refusal = (500, "broken")


def disconnect(redline: StandIn, home: PiHome) -> None:
    home.connection_file.unlink()


LOSSES = pytest.mark.parametrize("lose", [kill, fail, disconnect])
Loss = Callable[[StandIn, PiHome], None]


@LOSSES
def test_a_manual_compaction_whose_question_is_lost_is_cancelled(
    redline: StandIn, home: PiHome, short: Path, lose: Loss
) -> None:
    redline.grace = 0.5
    with Pi(home, short) as pi:
        compaction = pi.send("compact")
        redline.next_question()
        lose(redline, home)
        assert pi.response(compaction)["error"] == CANCELLED
        assert pi.shown("notify") == ["Redline does not answer any more. Nothing was compacted."]
        assert pi.shown("setStatus")[-2:] == ["Redline does not answer. Asking again.", ""]
    assert not was_summarised(short)


@LOSSES
def test_an_automatic_compaction_whose_question_is_lost_proceeds(
    redline: StandIn, home: PiHome, full: Path, model: MessagesServer, lose: Loss
) -> None:
    redline.grace = 0.5
    with Pi(home, full) as pi:
        pi.send("prompt", message="go on")
        redline.next_question()
        lose(redline, home)
        pi.first(lambda said: said["type"] == "agent_settled")
        assert pi.shown("notify") == ["Redline does not answer any more. Compacting as usual."]
    assert was_summarised(full)


def test_redline_may_restart_while_it_is_waited_for(redline: StandIn, home: PiHome, short: Path) -> None:
    with Pi(home, short) as pi:
        compaction = pi.send("compact")
        redline.next_question()
        redline.stop()
        pi.first(lambda said: "Asking again" in str(said.get("statusText")))
        redline.answer = edits_of((FIRST, None))
        redline.start(port=0)
        assert pi.response(compaction)["error"] == CANCELLED
    assert len(redline.questions) == len(lines(short, "context_edit")) == 1


def test_pi_does_not_wait_longer_than_the_limit(redline: StandIn, home: PiHome, short: Path) -> None:
    redline.answer = {**WAIT, "seconds": 0}
    redline.grace = 0.5
    with Pi(home, short) as pi:
        assert pi.run("compact")["error"] == CANCELLED
        assert pi.shown("notify") == ["Redline gave no decision in time. Nothing was compacted."]


def test_an_applied_plan_stays_applied_if_redline_is_gone_then(
    redline: StandIn, home: PiHome, short: Path
) -> None:
    def approved(polls: int) -> Any:
        if polls:
            redline.refusal = (503, "stopping")
            return edits_of((FIRST, None))
        return WAIT

    redline.answer_to = approved
    with Pi(home, short) as pi:
        assert pi.run("compact")["error"] == CANCELLED
        (shown,) = pi.shown("notify")
    assert "was not reached to verify" in shown
    assert len(lines(short, "context_edit")) == 1


def test_a_plan_that_redline_cannot_verify_is_shown_as_an_error(
    redline: StandIn, home: PiHome, short: Path
) -> None:
    redline.verified = {"state": "failed", "message": "The session does not have the approved context."}
    redline.answer = edits_of((FIRST, None))
    with Pi(home, short) as pi:
        pi.run("compact")
        shown = pi.first(lambda said: said.get("method") == "notify")
    assert (shown["notifyType"], shown["message"]) == ("error", redline.verified["message"])


# ---- plans that do not fit ---------------------------------------------------------------------------------------

UNFIT = {
    "an unknown entry": edits_of((FIRST, None), ("e9999999", None)),
    "an entry without content": edits_of((FIRST, None), ("e0000004", None)),
    "a replacement without content": {
        **edits_of((FIRST, None)),
        "edits": [{"targetId": FIRST, "replacement": None}, {"targetId": SECOND, "replacement": {}}],
    },
    "a missing replacement": {**edits_of(), "edits": [{"targetId": FIRST}]},
    "no edits": {"do": "apply", "state": "approved"},
    "deletions": {"do": "apply", "state": "approved", "deletions": []},
    "an unknown decision": {"do": "dance", "state": "approved"},
}


@pytest.mark.parametrize("plan", UNFIT.values(), ids=UNFIT)
def test_of_a_plan_that_does_not_fit_nothing_is_applied(
    redline: StandIn, home: PiHome, plan: dict[str, Any]
) -> None:
    session = home.session([*conversation(), {"type": "session_info", "name": "named"}])
    with Pi(home, session) as pi:
        compaction = pi.send("compact")
        redline.next_question()
        before = session.read_bytes()
        redline.answer = plan
        assert pi.response(compaction)["error"] == CANCELLED
        assert redline.report()["outcome"] == "failed"
        (shown,) = pi.shown("notify")
    assert shown == f"{redline.report()['message']} Nothing was compacted."
    assert session.read_bytes() == before


@pytest.mark.parametrize("is_manual", [True, False])
def test_a_session_that_continued_meanwhile_is_a_conflict(
    redline: StandIn, home: PiHome, full: Path, is_manual: bool
) -> None:
    with Pi(home, full) as pi:
        compaction = pi.send("compact") if is_manual else pi.send("prompt", message="go on")
        redline.next_question()
        assert pi.run("set_session_name", name="another name")["success"]
        redline.answer = edits_of((FIRST, None))
        pi.response(compaction)
        report = redline.report()
    assert (report["outcome"], report["leaf"]) == ("failed", lines(full, "session_info")[0]["id"])
    assert lines(full, "context_edit") == []
    assert was_summarised(full) == (not is_manual)


def test_edits_that_cannot_be_written_leave_pi_where_it_was(
    redline: StandIn, home: PiHome, short: Path, model: MessagesServer
) -> None:
    home.bridge.with_name("full_disk.ts").write_text(FULL_DISK)
    with Pi(home, short) as pi:
        compaction = pi.send("compact")
        leaf = redline.next_question()["leaf"]
        redline.answer = edits_of((FIRST, None), (SECOND, None))
        assert pi.response(compaction)["error"] == CANCELLED
        assert redline.report()["outcome"] == "failed"
        (undone,) = lines(short, "custom")
        assert (undone["customType"], undone["parentId"]) == (UNDO, leaf)
        pi.prompt("go on")
    assert len(lines(short, "context_edit")) == 1
    assert words(model.requests[0])[0] == "first question"


# ---- what the bridge does not do ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["http://192.0.2.7:8000", "https://127.0.0.1:1", "http://127.0.0.1.example:1", ""]
)
def test_it_sends_to_this_computer_only(redline: StandIn, home: PiHome, short: Path, url: str) -> None:
    redline.write_connection(url)
    with Pi(home, short) as pi:
        assert pi.run("compact")["success"]
    assert redline.paths == []


def test_it_follows_no_redirect(redline: StandIn, home: PiHome, short: Path) -> None:
    redline.location = f"{PATH}/elsewhere"
    with Pi(home, short) as pi:
        assert pi.run("compact")["success"]
    assert redline.paths == [PATH]


def test_it_uses_no_proxy(redline: StandIn, home: PiHome, short: Path) -> None:
    redline.answer = CONTINUE
    nowhere = {
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
        "NODE_USE_ENV_PROXY": "1",
    }
    with Pi(home, short, environment=nowhere) as pi:
        assert pi.run("compact")["error"] == CANCELLED
    assert len(redline.questions) == 1


def test_a_session_without_a_file_is_not_asked_about(
    redline: StandIn, home: PiHome, model: MessagesServer
) -> None:
    with Pi(home, None) as pi:
        pi.prompt("hello")
        pi.prompt("and again")
        pi.run("compact")
    assert redline.paths == []


def test_a_connection_is_tested_when_pi_starts(redline: StandIn, home: PiHome) -> None:
    with Pi(home, None, environment={"REDLINE_BRIDGE_TEST": "1"}) as pi:
        assert pi.run("get_state")["success"]
        wait_until(lambda: redline.questions)
    (test,) = redline.questions
    expected = {"test": True, "agent": "pi", "version": PINNED, "bridge": 1, "honours": "edits"}
    assert {key: test[key] for key in expected} == expected


# ---- a long wait -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["manual", "threshold"])
@pytest.mark.parametrize("agent", ["pi", "atomic"])
def test_it_waits_as_long_as_a_review_takes(
    agent: str, reason: str, tmp_path: Path, model: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds, or as long as REDLINE_WAIT_SECONDS says."""
    seconds = float(os.environ.get("REDLINE_WAIT_SECONDS", "3"))
    monkeypatch.setattr(pi_rpc, "WAIT_SECONDS", seconds + WAIT_SECONDS)
    polled_at: list[float] = []

    def answer(_polls: int) -> Any:
        polled_at.append(time.monotonic())
        return {**WAIT, "seconds": seconds} if polled_at[-1] - polled_at[0] < seconds else CONTINUE

    options = {"base_url": model.base_url}
    home = PiHome(tmp_path, **options) if agent == "pi" else pi_rpc.AtomicHome(tmp_path, OLD, **options)
    session = home.session(conversation(FULL if reason == "threshold" else 1_000))
    with StandIn(home.connection_file, agent) as redline, Pi(home, session) as running:
        redline.answer_to, redline.poll = answer, 0.5
        if reason == "manual":
            assert running.run("compact")["error"] == CANCELLED
        else:
            running.send("prompt", message="go on")
            running.first(lambda said: said["type"] == "agent_end")
        assert [one["reason"] for one in redline.questions] == [reason]
        assert redline.reports == []
    waited = polled_at[-1] - polled_at[0]
    assert waited >= seconds
    assert not was_summarised(session)
    assert len(model.requests) == (reason == "threshold")
    print(f"\n{agent}, {reason}: waited {waited:.1f} s, {len(polled_at) - 1} polls")
