"""The real OpenCode asks through its plugin before it compacts, and does what is answered.

Redline is a server that answers as a test says. What a review leads to is in `test_reviews`.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import pytest

from compaction_app.handshakes.review_requests import branch_of
from sessions_app.agents.opencode.edge.client import PluginBridge
from sessions_app.storage.session_loader import load_session
from tests.interop.stand_in import (
    COMPACT,
    CONTINUE,
    LOST,
    NOT_ON_THIS_COMPUTER,
    STOP,
    UNREACHED,
    VERIFIED,
    WAITING,
    Answer,
    StandIn,
    connecting_to,
    setting,
)
from tests.wait import wait_until

from .installed import client_program
from .opencode_runs import OpencodeRuns, OpencodeServer
from .opencode_session import FULL, WINDOW, OpenCodeSession, called
from .scripted_model import ModelReply, ScriptedModel
from .test_opencode import VERSION

SUMMARY: Final = ModelReply("All that was said, in short.")
OVERFLOW: Final = ModelReply(status=400, error="maximum context length exceeded: 50000 tokens")
WHOLE: Final = [
    *("prompt 1", "text c1", "c1", "output of c1", "reply 1"),
    *("prompt 2", "text c2", "c2", "output of c2", "reply 2"),
]


def plan(*parts: dict[str, Any]) -> Answer:
    return {"do": "apply", "state": "approved", "parts": list(parts)}


def texts(request: Mapping[str, Any]) -> list[str]:
    """The texts of a request, without the instructions; of a call its id."""
    found = []
    for message in request["messages"][1:]:
        content = message.get("content") or ""
        blocks = [{"text": content}] if isinstance(content, str) else content
        calls = [call["id"] for call in message.get("tool_calls", ())]
        found += ["".join(block["text"] for block in blocks).strip(), *calls]
    return found


def without(*calls: str) -> list[str]:
    """The texts of the session without some calls."""
    gone = {*calls, *(f"output of {call}" for call in calls)}
    return [one for one in WHOLE if one not in gone]


class AskingOpenCode(OpenCodeSession):
    """A session of two turns, each with a call of a tool, and the Redline that is asked about it."""

    def __init__(self, server: OpencodeServer, model: ScriptedModel, redline: StandIn) -> None:
        super().__init__(server, model)
        self.redline = redline
        self.before = self.rows()

    @contextmanager
    def compacting(self) -> Iterator[None]:
        """OpenCode while it asks about a compaction that was asked for, until the compaction has ended."""
        with ThreadPoolExecutor(1) as pool:
            compaction = pool.submit(self.compact)
            self.redline.next_question()
            yield
            compaction.result()

    def says(self, text: str) -> list[str]:
        """A turn that is one run; the texts of its last request."""
        self.prompt(text)
        return texts(self.model.conversation[-1])

    def fill(self, *replies: ModelReply) -> None:
        """Begin a turn whose first reply is at the threshold, and calls c3."""
        self.begin("go on", called("c3", FULL), *replies)

    def require_as_before(self) -> None:
        """Wait until all rows of the session are as they were when it was made."""
        wait_until(lambda: self.rows() == self.before, "not as it was before")

    def require_notice(self, text: str) -> None:
        wait_until(lambda: text in self.notices.shown, f"{text} is not shown")


def connected(directory: Path, model: ScriptedModel) -> OpencodeRuns:
    """A client with the bridge."""
    found = OpencodeRuns(client_program("opencode", VERSION), directory / "client", model, window=WINDOW)
    bridge = PluginBridge()
    file = bridge.path(found.scratch.home, None)
    file.parent.mkdir(parents=True)
    file.write_bytes(bridge.content(None, file, directory / "connection.json", ""))
    return found


@pytest.fixture(scope="module")
def model():
    with ScriptedModel() as scripted:
        yield scripted


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("opencode")


@pytest.fixture(scope="module")
def served(directory, model):
    with connected(directory, model).served() as server:
        yield server


@pytest.fixture
def asking(directory, served, model):
    with StandIn(directory / "connection.json", agent="opencode") as redline:
        yield AskingOpenCode(served, model, redline)


def test_the_question_describes_the_session_as_opencode_has_it(asking):
    with asking.compacting():
        (question,) = asking.redline.questions
        session = load_session(asking.path)
        assert question["branch"] == branch_of(session.tree.branch(question["leaf"])).model_dump()
        assert session.leaf_id == question["leaf"] == asking.messages()[-1]
        wanted = {"agent": "opencode", "version": VERSION, "bridge": 1, "reason": "manual", "honours": "parts"}
        assert question == {**question, **wanted, "session": str(asking.path)}
        asking.redline.answer = CONTINUE


def test_opencode_continues_with_what_was_approved(asking):
    before = asking.messages()
    with asking.compacting():
        asking.redline.answer = plan(asking.part("c1"))
    assert asking.redline.report() == {"outcome": "applied", "message": ""}
    wait_until(lambda: asking.messages() == before, "the mark of the compaction is still there")
    assert asking.model.conversation == []
    assert asking.says("go on") == [*without("c1"), "go on"]
    assert not asking.is_compacted
    asking.require_notice(VERIFIED)
    asking.require_notice(f"{WAITING} (10 min left)")


def test_a_changed_part_is_sent_as_it_was_approved(asking):
    with asking.compacting():
        (data,) = (data for _, data in asking.parts() if data.get("callID") == "c2")
        data["state"]["time"]["compacted"] = data["state"]["time"]["end"]
        asking.redline.answer = plan(asking.part("c2", data))
    wanted = [one if one != "output of c2" else "[Old tool result content cleared]" for one in WHOLE]
    assert asking.says("go on") == [*wanted, "go on"]


@pytest.mark.parametrize("decision", [CONTINUE, STOP], ids=["continue", "stop"])
def test_opencode_does_not_compact_if_that_was_decided(asking, decision):
    asking.redline.decide(decision)
    asking.compact()
    asking.require_as_before()
    assert asking.redline.reports == []
    assert asking.says("go on") == [*WHOLE, "go on"]
    asking.require_notice(decision["message"])


def test_opencode_compacts_if_that_was_decided(asking):
    asking.redline.decide(COMPACT)
    asking.model.replies.append(SUMMARY)
    asking.compact()
    assert asking.is_compacted
    assert len(asking.model.conversation) == 1
    assert SUMMARY.text in asking.says("go on")


def test_escape_withdraws_the_question(asking):
    with asking.compacting():
        asking.abort()
    assert asking.redline.report()["outcome"] == "withdrawn"
    asking.require_as_before()
    assert asking.says("go on") == [*WHOLE, "go on"]


def test_the_end_of_opencode_leaves_a_session_that_is_not_compacted(tmp_path, model):
    runs = connected(tmp_path, model)
    with StandIn(tmp_path / "connection.json", agent="opencode") as redline:
        with runs.served() as server:
            asking = AskingOpenCode(server, model, redline)
            with pytest.raises((OSError, HTTPException)), asking.compacting():
                server.process.kill()
        assert not asking.is_compacted
        with runs.served() as asking.server:
            assert asking.says("go on") == [*WHOLE, "go on"]
    assert len(redline.questions) == 1


def test_two_sessions_ask_at_once(asking):
    other = AskingOpenCode(asking.server, asking.model, asking.redline)
    with asking.compacting(), ThreadPoolExecutor(1) as pool:
        compaction = pool.submit(other.compact)
        asking.redline.next_question(2)
        assert {one["session"] for one in asking.redline.questions} == {str(asking.path), str(other.path)}
        asking.redline.answer = CONTINUE
        compaction.result()
    assert asking.model.conversation == []


def test_at_the_threshold_the_turn_continues_with_what_was_approved(asking):
    asking.fill(ModelReply("done"))
    assert asking.redline.next_question()["reason"] == "threshold"
    asking.redline.answer = plan(asking.part("c1"), asking.part("c2"))
    asking.wait_for_requests(2)
    wanted = [*without("c1", "c2"), "go on", "text c3", "c3", "output of c3"]
    assert texts(asking.model.conversation[-1]) == wanted
    assert asking.says("and on")[: len(wanted)] == wanted
    assert len(asking.redline.questions) == 1
    assert not asking.is_compacted


@pytest.mark.parametrize("is_ended", [True, False], ids=["after the run", "while the run is ended"])
def test_after_the_last_reply_of_a_turn_nothing_is_sent_until_the_next_prompt(asking, is_ended):
    asking.begin("go on", ModelReply("done", tokens=FULL))
    assert asking.redline.next_question()["reason"] == "threshold"
    asking.redline.answer = plan(asking.part("c1"))
    asking.redline.report()
    if is_ended:
        asking.wait_for_requests(1)
    asking.begin("and on")
    asking.wait_for_requests(2)
    assert texts(asking.model.conversation[-1]) == [*without("c1"), "go on", "done", "and on"]
    assert len(asking.redline.questions) == 1
    # Of the message that marked the compaction, the part was deleted first.
    empty = "SELECT id FROM message WHERE session_id = ? AND id NOT IN (SELECT message_id FROM part)"
    wait_until(lambda: not asking.server.runs.rows(empty, asking.session), "the message of the mark is still there")


@pytest.mark.parametrize("is_applied", [False, True], ids=["without compacting", "with what was approved"])
def test_above_the_threshold_opencode_asks_once_in_a_turn(asking, is_applied):
    asking.redline.decide(plan(asking.part("c1")) if is_applied else CONTINUE)
    asking.fill(called("c4", FULL), ModelReply("done"))
    asking.wait_for_requests(3)
    assert len(asking.redline.questions) == 1
    asking.redline.answer_to = lambda _polls: CONTINUE
    asking.begin("and on", called("c5", FULL), ModelReply("done"))
    asking.wait_for_requests(5)
    assert len(asking.redline.questions) == 2
    assert not asking.is_compacted


def test_opencode_asks_again_in_a_turn_whose_context_was_shorter_meanwhile(asking):
    asking.redline.decide(CONTINUE)
    asking.fill(called("c4"), called("c5", FULL), ModelReply("done"))
    asking.wait_for_requests(4)
    assert [one["reason"] for one in asking.redline.questions] == ["threshold", "threshold"]


@pytest.mark.parametrize(("reply", "decision"), [(called("c3", FULL), STOP), (OVERFLOW, CONTINUE)])
def test_a_turn_sends_nothing_more_if_it_is_stopped_or_its_request_was_not_shortened(asking, reply, decision):
    asking.redline.decide(decision)
    asking.begin("go on", reply)
    asking.require_notice(decision["message"])
    asking.wait_for_requests(1)
    assert not asking.is_compacted


def test_after_an_overflow_the_request_is_repeated_with_what_was_approved(asking):
    asking.begin("go on", OVERFLOW, ModelReply("now it fits"))
    assert asking.redline.next_question()["reason"] == "overflow"
    asking.redline.answer = plan(asking.part("c1"))
    asking.wait_for_requests(2)
    whole, edited = map(texts, asking.model.conversation)
    assert whole == [*WHOLE, "go on"]
    assert edited == [*without("c1"), "go on"]
    assert not asking.is_compacted


def test_a_headless_run_compacts_as_usual(asking):
    replies = [called("c1", FULL), SUMMARY, ModelReply("done")]
    assert len(asking.server.runs.run("go on", replies).requests) == 3
    assert asking.redline.questions == []


def test_a_subagent_compacts_as_usual(asking):
    child = {"title": "child", "parentID": asking.session}
    asking.session = asking.server.call("POST", "/session", child)["id"]
    asking.fill(SUMMARY, ModelReply("done"))
    asking.wait_for_requests(3)
    assert asking.redline.questions == []
    assert asking.is_compacted


@pytest.mark.parametrize("end", [StandIn.stop, StandIn.disconnect])
def test_without_redline_opencode_compacts_as_usual(asking, end):
    end(asking.redline)
    asking.fill(SUMMARY, ModelReply("done"))
    asking.wait_for_requests(3)
    asking.model.replies.append(SUMMARY)
    asking.compact()
    asking.wait_for_requests(4)
    assert asking.is_compacted
    expected = [UNREACHED] * 2 if end is StandIn.stop else []
    wait_until(lambda: asking.notices.shown[1::2] == expected, "other notices are shown")


@pytest.mark.parametrize(
    ("change", "notice"),
    [
        (setting(refusal=(400, "It is not known.")), "It is not known. Compacting as usual."),
        # It follows no redirect, and sends to this computer only.
        (setting(location="http://127.0.0.1:9/elsewhere"), "Redline answered with status 302. Compacting as usual."),
        *((connecting_to(url), UNREACHED) for url in NOT_ON_THIS_COMPUTER if url),
    ],
)
def test_an_error_at_first_is_shown_and_opencode_compacts_as_usual(asking, change, notice):
    change(asking.redline)
    asking.model.replies.append(SUMMARY)
    asking.compact()
    assert asking.is_compacted
    asking.require_notice(notice)


def test_a_manual_compaction_whose_question_is_lost_is_cancelled(asking):
    asking.redline.grace = 0.5
    with asking.compacting():
        asking.redline.stop()
    asking.require_as_before()
    asking.require_notice(f"{LOST} Nothing was compacted.")


def test_an_automatic_compaction_whose_question_is_lost_proceeds(asking):
    asking.redline.grace = 0.5
    asking.fill(SUMMARY, ModelReply("done"))
    asking.redline.next_question()
    asking.redline.stop()
    asking.wait_for_requests(3)
    assert asking.is_compacted
    asking.require_notice(f"{LOST} Compacting as usual.")


def test_redline_may_restart_while_it_is_waited_for(asking):
    with asking.compacting():
        asking.redline.stop()
        asking.require_notice("Redline does not answer. Asking again.")
        asking.redline.answer = plan(asking.part("c1"))
        asking.redline.start(port=0)
    assert asking.redline.report()["outcome"] == "applied"
    assert asking.says("go on") == [*without("c1"), "go on"]


@pytest.mark.parametrize(
    ("change", "why"),
    [({"part": "prt_missing"}, "no part prt_missing"), ({"data": {"type": "no such type"}}, "with status 400")],
    ids=["a missing part", "a part that cannot be changed"],
)
def test_of_a_plan_that_does_not_fit_nothing_stays_applied(asking, change, why):
    asking.redline.answer = plan(asking.part("c1"), {**asking.part("c2"), **change})
    asking.compact()
    assert asking.redline.report()["outcome"] == "failed"
    assert why in asking.redline.report()["message"]
    asking.require_as_before()


def test_a_session_that_continued_meanwhile_is_a_conflict(asking):
    with asking.compacting():
        asking.begin("meanwhile")
        wait_until(lambda: any(data.get("text") == "meanwhile" for _, data in asking.parts()))
        asking.redline.answer = plan(asking.part("c1"))
    report = asking.redline.report()
    assert report["outcome"] == "failed"
    assert "the session continued while the plan was reviewed" in report["message"]
    assert any(data.get("callID") == "c1" for _, data in asking.parts())


def test_a_second_copy_of_the_bridge_does_not_ask_again(tmp_path, model):
    runs = connected(tmp_path, model)
    file = PluginBridge().path(runs.scratch.home, None)
    file.with_name("again.js").write_bytes(file.read_bytes())
    with StandIn(tmp_path / "connection.json", agent="opencode") as redline, runs.served() as server:
        redline.answer = CONTINUE
        AskingOpenCode(server, model, redline).compact()
    assert len(redline.questions) == 1
    assert model.conversation == []
