"""Real pi with Redline's bridge: it asks before it compacts, and continues with exactly what was approved.

Redline is a stand-in here, which decides what the test decides. test_pi_review.py does the same with Redline itself.
"""

import hashlib
import json
import os
import time

import pytest

from sessions_app.agents.pi.pure.parser import UNDO
from tests.factories import text
from tests.interop import pi_rpc
from tests.interop.install_atomic import OLD
from tests.interop.install_pi import PINNED
from tests.interop.pi_rpc import (
    FIRST,
    FULL,
    SECOND,
    WINDOW,
    AtomicHome,
    Pi,
    PiHome,
    conversation,
    lines,
    was_summarised,
    words,
)
from tests.interop.stand_in import (
    COMPACT,
    CONTINUE,
    LOST,
    NOT_ON_THIS_COMPUTER,
    PATH,
    STOP,
    UNREACHED,
    VERIFIED,
    WAIT,
    WAITING,
    Answer,
    StandIn,
    connecting_to,
    edits_of,
    setting,
)
from tests.interop_clients.messages_server import ScriptedReply, call_block, said
from tests.wait import WAIT_SECONDS, wait_until

OF_PI = {"agent": "pi", "version": PINNED, "bridge": 1, "honours": "edits"}
OVERFLOW = ScriptedReply(status=400, error="prompt is too long: 30000 tokens > 20000 maximum")
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


def test_the_question_describes_the_session_as_pi_has_it(asking):
    with asking.open() as pi:
        pi.send("compact", customInstructions="keep the decisions")
        question = asking.redline.next_question()
    entries = [json.loads(line) for line in asking.short.read_text().splitlines()[1:]]
    digest = hashlib.sha256("".join(f"{entry['id']}\n" for entry in entries).encode()).hexdigest()
    preparation = question.pop("preparation")
    branch = {"leaf": entries[-1]["id"], "branch": {"entries": len(entries), "sha256": digest}}
    assert question == {**OF_PI, "session": str(asking.short), "reason": "manual", **branch}
    assert (preparation["instructions"], preparation["contextWindow"]) == ("keep the decisions", WINDOW)


@pytest.mark.core
def test_pi_continues_with_what_was_approved(asking):
    with asking.compacting() as pi:
        asking.redline.answer = edits_of((FIRST, None), (SECOND, [text("shortened")]))
        assert pi.is_cancelled()
        leaf = lines(asking.short, "context_edit")[-1]["id"]
        assert asking.redline.report() == {"outcome": "applied", "message": "", "leaf": leaf}
        pi.wait_for_notice(VERIFIED)
        assert pi.shown("setStatus") == ["Redline: preparing the review", f"{WAITING} (10 min left)", ""]
        pi.prompt("go on")
    assert words(asking.model.requests[0]) == ["shortened", "second question", "second answer", "go on"]
    assert not was_summarised(asking.short)


@pytest.mark.parametrize("decision", [COMPACT, CONTINUE, STOP], ids=lambda one: one["do"])
def test_pi_does_what_was_decided_instead(asking, decision):
    with asking.compacting() as pi:
        asking.redline.answer = decision
        assert pi.ended()["success"] == (decision is COMPACT)
        pi.wait_for_notice(decision["message"])
    assert was_summarised(asking.short) == (decision is COMPACT)
    assert asking.redline.reports == []


def test_ten_minutes_of_waiting(asking):
    # A minute passes with 20 polls: the bridge has no clock of its own that matters.
    asking.redline.answer_to = lambda polls: {**WAIT, "seconds": 600 - 3 * polls} if polls < 200 else COMPACT
    with asking.open() as pi:
        assert pi.run("compact")["success"]
        shown = pi.shown("setStatus")
    assert asking.redline.polls == 200
    minutes = [f"{WAITING} ({minute} min left)" for minute in range(10, 1, -1)]
    assert [one for one in shown if "min left" in one] == minutes
    assert len(shown) < 25
    assert was_summarised(asking.short)


def test_escape_withdraws_the_question(asking):
    with asking.compacting() as pi:
        pi.send("abort")
        assert pi.is_cancelled()
        assert asking.redline.report()["outcome"] == "withdrawn"
        asking.redline.answer = COMPACT
        assert pi.run("compact")["success"]
    assert len(asking.redline.questions) == 2


def test_the_end_of_the_session_withdraws_the_question(asking):
    with asking.compacting() as pi:
        assert pi.close() == 0
    assert asking.redline.report()["outcome"] == "withdrawn"
    assert not was_summarised(asking.short)


def test_two_agents_ask_at_once(asking):
    sessions = [asking.home.session(conversation(), name) for name in ("one", "other")]
    with asking.compacting(sessions[0]) as one, asking.open(sessions[1]) as other:
        other.send("compact")
        asking.redline.next_question(2)
        asking.redline.answer = edits_of((FIRST, None))
        assert (one.is_cancelled(), other.is_cancelled()) == (True, True)
    assert {question["session"] for question in asking.redline.questions} == set(map(str, sessions))
    assert [len(lines(session, "context_edit")) for session in sessions] == [1, 1]


def test_a_second_copy_of_the_bridge_does_not_ask_again(asking):
    (asking.home.bridge.with_name("again.ts")).write_bytes(asking.home.bridge.read_bytes())
    asking.redline.answer = COMPACT
    with asking.open() as pi:
        assert pi.run("compact")["success"]
    assert len(asking.redline.questions) == 1


def test_at_the_threshold_the_waiting_prompt_continues_with_what_was_approved(asking):
    with asking.prompted() as pi:
        assert asking.redline.questions[0]["reason"] == "threshold"
        assert asking.model.requests == []
        asking.redline.answer = edits_of((FIRST, None), (SECOND, None))
        pi.settle()
    (request,) = asking.model.requests
    assert words(request) == ["second question", "second answer", "go on"]
    assert len(asking.redline.questions) == 1


def test_after_an_overflow_the_request_is_repeated_with_what_was_approved(asking):
    asking.model.replies += [OVERFLOW, said("now it fits")]
    with asking.prompted(asking.short) as pi:
        assert asking.redline.questions[0]["reason"] == "overflow"
        asking.redline.answer = edits_of((FIRST, None), (SECOND, None))
        pi.settle()
    whole, edited = map(words, asking.model.requests)
    assert whole == ["first question", "first answer", "second question", "second answer", "go on"]
    assert edited == ["second question", "second answer", "go on"]
    assert not was_summarised(asking.short)


def called(tokens: int) -> ScriptedReply:
    """A reply that calls a tool, so that another request of the same run follows."""
    return ScriptedReply([call_block("toolu_1", "bash", command="true")], {"input_tokens": tokens})


@pytest.mark.parametrize(
    ("decision", "edits"),
    [(CONTINUE, 0), (edits_of((FIRST, None)), 1)],
    ids=["without compacting", "with what was approved"],
)
@pytest.mark.parametrize("at_last", [FULL, WINDOW + 1_000], ids=["threshold", "overflow"])
def test_pi_continues_above_the_threshold_and_asks_once_in_a_run(asking, decision, edits, at_last):
    asking.model.replies += [called(FULL), called(FULL), said("done", input_tokens=at_last)]
    asking.redline.decide(decision)
    with asking.open(asking.full) as pi:
        pi.prompt("go on")
        assert len(asking.redline.questions) == 1
        assert len(asking.model.requests) == 3
        assert len(lines(asking.full, "context_edit")) == edits
        asking.redline.answer_to = lambda _polls: CONTINUE
        pi.prompt("and on")
    assert len(asking.redline.questions) == 2
    assert not was_summarised(asking.full)


FILLED = said("done", input_tokens=FULL)
OVERLOADED = ScriptedReply(status=529, error="overloaded_error")
EDITS = [edits_of((FIRST, None)), edits_of((SECOND, None))]
REPEATED = [
    # The context was shorter meanwhile.
    ([called(FULL), called(100), called(FULL), FILLED], [EDITS[0], CONTINUE], ["threshold", "threshold"]),
    # An overflow after an applied plan is another question.
    ([OVERFLOW, said("fits")], EDITS, ["threshold", "overflow"]),
    # A request that pi repeats after an error is of the same run.
    ([OVERLOADED, FILLED], EDITS[:1], ["threshold"]),
]


@pytest.mark.parametrize(("replies", "decisions", "reasons"), REPEATED, ids=["shorter meanwhile", "overflow", "error"])
def test_pi_asks_again_in_a_run_if_its_context_has_grown_again(asking, replies, decisions, reasons):
    asking.model.replies += replies
    asking.redline.answer_to = lambda _polls: decisions[len(asking.redline.questions) - 1]
    with asking.open(asking.full) as pi:
        pi.prompt("go on")
    assert [question["reason"] for question in asking.redline.questions] == reasons
    assert len(asking.model.requests) == len(replies)
    assert not was_summarised(asking.full)
    if OVERFLOW in replies:
        assert words(asking.model.requests[-1]) == ["second question", "second answer", "go on"]


def test_a_stopped_turn_sends_nothing(asking):
    asking.redline.answer = STOP
    with asking.open(asking.full) as pi:
        pi.prompt("go on")
        pi.wait_for_notice(STOP["message"])
        assert asking.model.requests == []
        asking.redline.answer = CONTINUE
        pi.prompt("and on")
    assert len(asking.model.requests) == 1


@pytest.mark.parametrize(
    ("lose", "notice", "paths"),
    [
        (StandIn.stop, UNREACHED, []),
        (StandIn.disconnect, "", []),
        (setting(refusal=(409, "It is not\x1b[2J known.")), "It is not [2J known. Compacting as usual.", [PATH]),
        # It follows no redirect, and sends to this computer only.
        (setting(location=f"{PATH}/elsewhere"), "Redline answered with status 302. Compacting as usual.", [PATH]),
        *((connecting_to(url), UNREACHED, []) for url in NOT_ON_THIS_COMPUTER),
    ],
)
def test_without_redline_pi_compacts_as_usual(asking, lose, notice, paths):
    lose(asking.redline)
    with asking.open() as pi:
        assert pi.run("compact")["success"]
        if notice:
            pi.wait_for_notice(notice)
        else:
            assert pi.shown("notify") == pi.shown("setStatus") == []
    assert asking.redline.paths == paths


@pytest.mark.parametrize("lose", [StandIn.stop, StandIn.disconnect, setting(refusal=(500, "broken"))])
@pytest.mark.parametrize("is_manual", [True, False], ids=["manual", "threshold"])
def test_a_compaction_whose_question_is_lost(asking, is_manual, lose):
    asking.redline.grace = 0.5
    with asking.compacting(asking.full) if is_manual else asking.prompted() as pi:
        lose(asking.redline)
        if is_manual:
            assert pi.is_cancelled()
            pi.wait_for_notice(f"{LOST} Nothing was compacted.")
            assert pi.shown("setStatus")[-2:] == ["Redline does not answer. Asking again.", ""]
        else:
            pi.settle()
            pi.wait_for_notice(f"{LOST} Compacting as usual.")
    assert was_summarised(asking.full) is not is_manual


def test_redline_may_restart_while_it_is_waited_for(asking):
    with asking.compacting() as pi:
        asking.redline.stop()
        pi.first(lambda said: "Asking again" in str(said.get("statusText")))
        asking.redline.answer = edits_of((FIRST, None))
        asking.redline.start(port=0)
        assert pi.is_cancelled()
    assert len(asking.redline.questions) == len(lines(asking.short, "context_edit")) == 1


def test_pi_does_not_wait_longer_than_the_limit(asking):
    asking.redline.answer = {**WAIT, "seconds": 0}
    asking.redline.grace = 0.5
    with asking.compacting() as pi:
        assert pi.is_cancelled()
        pi.wait_for_notice("Redline gave no decision in time. Nothing was compacted.")


def test_an_applied_plan_stays_applied_if_redline_is_gone_then(asking):
    def approved(polls: int) -> Answer:
        if polls:
            asking.redline.refusal = (503, "stopping")
            return edits_of((FIRST, None))
        return WAIT

    asking.redline.answer_to = approved
    with asking.compacting() as pi:
        assert pi.is_cancelled()
        shown = pi.first_notice()
    assert "was not reached to verify" in shown["message"]
    assert len(lines(asking.short, "context_edit")) == 1


def test_a_plan_that_redline_cannot_verify_is_shown_as_an_error(asking):
    redline = asking.redline
    redline.verified = {"state": "failed", "message": "The session does not have the approved context."}
    redline.answer = edits_of((FIRST, None))
    with asking.open() as pi:
        pi.run("compact")
        shown = pi.first_notice()
    assert (shown["notifyType"], shown["message"]) == ("error", redline.verified["message"])


UNFIT = {
    "an unknown entry": edits_of((FIRST, None), ("e9999999", None)),
    "an entry without content": edits_of((FIRST, None), ("e5", None)),
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
def test_of_a_plan_that_does_not_fit_nothing_is_applied(asking, plan):
    session = asking.home.session([*conversation(), {"type": "session_info", "name": "named"}])
    with asking.compacting(session) as pi:
        before = session.read_bytes()
        asking.redline.answer = plan
        assert pi.is_cancelled()
        report = asking.redline.report()
        assert report["outcome"] == "failed"
        pi.wait_for_notice(f"{report['message']} Nothing was compacted.")
    assert session.read_bytes() == before


@pytest.mark.parametrize("is_manual", [True, False])
def test_a_session_that_continued_meanwhile_is_a_conflict(asking, is_manual):
    with asking.compacting(asking.full) if is_manual else asking.prompted() as pi:
        assert pi.run("set_session_name", name="another name")["success"]
        asking.redline.answer = edits_of((FIRST, None))
        pi.ended()
        report = asking.redline.report()
        if not is_manual:
            wait_until(lambda: was_summarised(asking.full), "it did not compact as usual")
    assert (report["outcome"], report["leaf"]) == ("failed", lines(asking.full, "session_info")[0]["id"])
    assert lines(asking.full, "context_edit") == []
    assert was_summarised(asking.full) == (not is_manual)


def test_edits_that_cannot_be_written_leave_pi_where_it_was(asking):
    asking.home.bridge.with_name("full_disk.ts").write_text(FULL_DISK)
    with asking.compacting() as pi:
        asking.redline.answer = edits_of((FIRST, None), (SECOND, None))
        assert pi.is_cancelled()
        assert asking.redline.report()["outcome"] == "failed"
        (undone,) = lines(asking.short, "custom")
        assert (undone["customType"], undone["parentId"]) == (UNDO, asking.redline.questions[0]["leaf"])
        pi.prompt("go on")
    assert len(lines(asking.short, "context_edit")) == 1
    assert words(asking.model.requests[0])[0] == "first question"


def test_it_uses_no_proxy(asking):
    asking.redline.answer = CONTINUE
    nowhere = dict.fromkeys(["HTTP_PROXY", "http_proxy"], "http://127.0.0.1:9")
    with asking.open(NODE_USE_ENV_PROXY="1", **nowhere) as pi:
        pi.send("compact")
        assert pi.is_cancelled()
    assert len(asking.redline.questions) == 1


def test_a_session_without_a_file_is_not_asked_about(asking):
    with Pi(asking.home, None) as pi:
        pi.prompt("hello")
        pi.prompt("and again")
        pi.run("compact")
    assert asking.redline.paths == []


def test_a_connection_is_tested_when_pi_starts(asking):
    with Pi(asking.home, None, environment={"REDLINE_BRIDGE_TEST": "1"}) as pi:
        assert pi.run("get_state")["success"]
        wait_until(lambda: asking.redline.questions)
    (test,) = asking.redline.questions
    expected = {"test": True, **OF_PI}
    assert {key: test[key] for key in expected} == expected


@pytest.mark.parametrize("reason", ["manual", "threshold"])
@pytest.mark.parametrize("agent", ["pi", "atomic"])
def test_it_waits_as_long_as_a_review_takes(agent, reason, tmp_path, model, monkeypatch):
    """Seconds, or as long as REDLINE_WAIT_SECONDS says."""
    seconds = float(os.environ.get("REDLINE_WAIT_SECONDS", "3"))
    monkeypatch.setattr(pi_rpc, "WAIT_SECONDS", seconds + WAIT_SECONDS)
    polled_at: list[float] = []

    def answer(_polls: int) -> Answer:
        polled_at.append(time.monotonic())
        return {**WAIT, "seconds": seconds} if polled_at[-1] - polled_at[0] < seconds else CONTINUE

    base = tmp_path / "home"
    home = PiHome(base, base_url=model.url) if agent == "pi" else AtomicHome(base, OLD, base_url=model.url)
    session = home.session(conversation(FULL if reason == "threshold" else 1_000))
    with StandIn(home.connection_file, agent) as redline, Pi(home, session) as running:
        redline.answer_to, redline.poll = answer, 0.5
        if reason == "manual":
            running.send("compact")
            assert running.is_cancelled()
        else:
            running.send("prompt", message="go on")
            running.first(lambda said: said["type"] == "agent_end")
        assert [one["reason"] for one in redline.questions] == [reason]
        assert redline.reports == []
    assert polled_at[-1] - polled_at[0] >= seconds
    assert not was_summarised(session)
    assert len(model.requests) == (reason == "threshold")
