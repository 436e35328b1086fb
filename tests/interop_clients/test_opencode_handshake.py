"""The real OpenCode asks through its plugin before it compacts, and does what is answered.

Redline is a server that answers as a test says. What a review leads to is in `test_opencode_review`.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from compaction_app.handshakes.questions import branch_of
from sessions_app.agents.opencode.bridge import PluginBridge
from sessions_app.storage.session_loader import load_session
from tests.interop.stand_in import WAIT, WAITING, Answer, StandIn
from tests.wait import wait_until

from .installed import client_program
from .opencode_runs import OpencodeRuns, OpencodeServer
from .scripted_model import ModelReply, ScriptedModel
from .test_opencode import VERSION, shell

WINDOW: Final = 40_000
FULL: Final = 33_000
"""Tokens at which it compacts: the window, less 8,000 for the reply."""
COMPACT: Final = {"do": "compact", "state": "declined", "message": "Declined. OpenCode compacts as usual."}
CONTINUE: Final = {"do": "continue", "state": "declined", "message": "Nothing was compacted."}
STOP: Final = {"do": "stop", "state": "expired", "message": "Nobody reviewed the plan in time."}
SUMMARY: Final = ModelReply("All that was said, in short.")
OVERFLOW: Final = ModelReply(status=400, error="maximum context length exceeded: 50000 tokens")


class Notices(threading.Thread):
    """What OpenCode's interface is told to show, from the server's stream of events."""

    def __init__(self, server: OpencodeServer) -> None:
        super().__init__(daemon=True)
        self.shown: list[str] = []
        self._stream = urllib.request.urlopen(f"{server.url}/event")
        self.start()

    def run(self) -> None:
        for line in self._stream:
            event = json.loads(line[5:]) if line.startswith(b"data:") else {}
            if event.get("type") == "tui.toast.show":
                self.shown.append(event["properties"]["message"])


class AskingOpenCode:
    """A server of OpenCode with the bridge, and one session of two turns, each with a call of a tool."""

    def __init__(self, runs: OpencodeRuns, server: OpencodeServer, model: ScriptedModel) -> None:
        self.runs, self.server, self.model = runs, server, model
        self.notices = Notices(server)
        self.session: str = server.call("POST", "/session", {"title": "asking"})["id"]
        for number in (1, 2):
            self.prompt(f"prompt {number}", called(f"c{number}"), ModelReply(f"reply {number}"))
        self.model.conversation.clear()

    def begin(self, text: str, *replies: ModelReply) -> None:
        """Begin a turn."""
        self.model.replies.extend(replies)
        parts = [{"type": "text", "text": text}]
        self.server.call("POST", f"/session/{self.session}/prompt_async", {"parts": parts})

    def prompt(self, text: str, *replies: ModelReply) -> list[str]:
        """A turn that is one run; the texts of its last request."""
        known = len(self.model.conversation)
        self.begin(text, *replies)
        self.wait_for_requests(known + max(1, len(replies)))
        return texts(self.model.conversation[-1])

    def compact(self) -> None:
        """A compaction that the person asks for; returns once its run has ended."""
        model = {"providerID": "scripted", "modelID": "model"}
        self.server.call("POST", f"/session/{self.session}/summarize", model)

    def abort(self) -> None:
        """What Esc does."""
        self.server.call("POST", f"/session/{self.session}/abort")

    def wait_for_requests(self, number: int) -> None:
        wait_until(lambda: len(self.model.conversation) >= number, "no such request was sent")
        self.wait_until_idle()
        assert len(self.model.conversation) == number

    def wait_until_idle(self) -> None:
        wait_until(lambda: self.session not in self.server.call("GET", "/session/status"), "it is busy")

    @property
    def path(self) -> Path:
        return self.runs.database / self.session

    def parts(self) -> list[tuple[str, dict[str, Any]]]:
        """The ids of the parts, and their data, in order."""
        query = "SELECT id, data FROM part WHERE session_id = ? ORDER BY message_id, id"
        return [(row["id"], json.loads(row["data"])) for row in self.runs.rows(query, self.session)]

    def messages(self) -> list[str]:
        query = "SELECT id FROM message WHERE session_id = ? ORDER BY time_created, id"
        return [row["id"] for row in self.runs.rows(query, self.session)]

    def part(self, call: str, data: object = None) -> dict[str, Any]:
        """A change of the part of a call, as a plan has it."""
        query = "SELECT id, message_id FROM part WHERE session_id = ? AND data ->> 'callID' = ?"
        (row,) = self.runs.rows(query, self.session, call)
        return {"message": row["message_id"], "part": row["id"], "data": data}

    @property
    def is_compacted(self) -> bool:
        return any(data["type"] == "compaction" for _, data in self.parts())


def called(call: str, tokens: int = 100) -> ModelReply:
    """A reply that calls a tool, so that another request of the same run follows."""
    return ModelReply(f"text {call}", calls=[shell(call, f"echo output of {call}")], tokens=tokens)


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


WHOLE: Final = [
    *("prompt 1", "text c1", "c1", "output of c1", "reply 1"),
    *("prompt 2", "text c2", "c2", "output of c2", "reply 2"),
]


def without(*calls: str) -> list[str]:
    """The texts of the session without some calls."""
    gone = {*calls, *(f"output of {call}" for call in calls)}
    return [one for one in WHOLE if one not in gone]


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as scripted:
        yield scripted


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("opencode")


def connected(directory: Path, model: ScriptedModel) -> OpencodeRuns:
    """A client with the bridge."""
    found = OpencodeRuns(client_program("opencode", VERSION), directory / "client", model, window=WINDOW)
    bridge = PluginBridge()
    file = bridge.path(found.scratch.home, None)
    file.parent.mkdir(parents=True)
    file.write_bytes(bridge.content(None, file, directory / "connection.json", ""))
    return found


@pytest.fixture(scope="module")
def runs(directory: Path, model: ScriptedModel) -> OpencodeRuns:
    return connected(directory, model)


@pytest.fixture(scope="module")
def served(runs: OpencodeRuns) -> Iterator[OpencodeServer]:
    with runs.served() as server:
        yield server


@pytest.fixture
def redline(directory: Path) -> Iterator[StandIn]:
    with StandIn(directory / "connection.json", agent="opencode") as stand_in:
        yield stand_in


@pytest.fixture
def opencode(redline: StandIn, served: OpencodeServer, model: ScriptedModel) -> AskingOpenCode:
    del redline
    return AskingOpenCode(served.runs, served, model)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as found:
        yield found


# ---- a manual compaction -----------------------------------------------------------------------------------------


def test_the_question_describes_the_session_as_opencode_has_it(
    redline: StandIn, opencode: AskingOpenCode, pool: ThreadPoolExecutor
) -> None:
    compaction = pool.submit(opencode.compact)
    question = redline.next_question()
    session = load_session(opencode.path)
    branch = session.tree.branch(question["leaf"])
    assert question["branch"] == branch_of(branch).model_dump()
    assert session.leaf_id == question["leaf"] == opencode.messages()[-1]
    described = {
        name: question[name] for name in ("agent", "version", "bridge", "session", "reason", "honours")
    }
    assert described == {
        "agent": "opencode",
        "version": VERSION,
        "bridge": 1,
        "session": str(opencode.path),
        "reason": "manual",
        "honours": "parts",
    }
    redline.answer = CONTINUE
    compaction.result()


def test_opencode_continues_with_what_was_approved(
    redline: StandIn, opencode: AskingOpenCode, pool: ThreadPoolExecutor
) -> None:
    before = opencode.messages()
    compaction = pool.submit(opencode.compact)
    redline.next_question()
    redline.answer = plan(opencode.part("c1"))
    compaction.result()
    assert redline.report() == {"outcome": "applied", "message": ""}
    wait_until(lambda: opencode.messages() == before, "the mark of the compaction is still there")
    assert opencode.model.conversation == []
    assert opencode.prompt("go on") == [*without("c1"), "go on"]
    assert not opencode.is_compacted
    wait_until(lambda: "Redline verified the plan." in opencode.notices.shown)
    assert f"{WAITING} (10 min left)" in opencode.notices.shown


def test_a_changed_part_is_sent_as_it_was_approved(
    redline: StandIn, opencode: AskingOpenCode, pool: ThreadPoolExecutor
) -> None:
    compaction = pool.submit(opencode.compact)
    redline.next_question()
    (data,) = (data for _, data in opencode.parts() if data.get("callID") == "c2")
    data["state"]["time"]["compacted"] = data["state"]["time"]["end"]
    redline.answer = plan(opencode.part("c2", data))
    compaction.result()
    wanted = [one if one != "output of c2" else "[Old tool result content cleared]" for one in WHOLE]
    assert opencode.prompt("go on") == [*wanted, "go on"]


@pytest.mark.parametrize("decision", [CONTINUE, STOP], ids=["continue", "stop"])
def test_opencode_does_not_compact_if_that_was_decided(
    redline: StandIn, opencode: AskingOpenCode, decision: Answer
) -> None:
    before = opencode.messages(), opencode.parts()
    redline.answer_to = lambda polls: decision if polls else WAIT
    opencode.compact()
    wait_until(lambda: (opencode.messages(), opencode.parts()) == before, "not as it was before")
    assert redline.reports == []
    assert opencode.prompt("go on") == [*WHOLE, "go on"]
    assert decision["message"] in opencode.notices.shown


def test_opencode_compacts_if_that_was_decided(redline: StandIn, opencode: AskingOpenCode) -> None:
    redline.answer_to = lambda polls: COMPACT if polls else WAIT
    opencode.model.replies.append(SUMMARY)
    opencode.compact()
    assert opencode.is_compacted
    assert len(opencode.model.conversation) == 1
    assert SUMMARY.text in opencode.prompt("go on")


def test_escape_withdraws_the_question(
    redline: StandIn, opencode: AskingOpenCode, pool: ThreadPoolExecutor
) -> None:
    before = opencode.messages(), opencode.parts()
    compaction = pool.submit(opencode.compact)
    redline.next_question()
    opencode.abort()
    compaction.result()
    assert redline.report()["outcome"] == "withdrawn"
    wait_until(lambda: (opencode.messages(), opencode.parts()) == before, "not as it was before")
    assert opencode.prompt("go on") == [*WHOLE, "go on"]


def test_the_end_of_opencode_leaves_a_session_that_is_not_compacted(
    tmp_path: Path, model: ScriptedModel, pool: ThreadPoolExecutor
) -> None:
    runs = connected(tmp_path, model)
    with StandIn(tmp_path / "connection.json", agent="opencode") as redline:
        with runs.served() as server:
            opencode = AskingOpenCode(runs, server, model)
            compaction = pool.submit(opencode.compact)
            redline.next_question()
            server.process.kill()
            assert compaction.exception() is not None
        assert not opencode.is_compacted
        with runs.served() as opencode.server:
            assert opencode.prompt("go on") == [*WHOLE, "go on"]
    assert len(redline.questions) == 1


def test_two_sessions_ask_at_once(
    redline: StandIn, opencode: AskingOpenCode, model: ScriptedModel, pool: ThreadPoolExecutor
) -> None:
    other = AskingOpenCode(opencode.runs, opencode.server, model)
    both = [pool.submit(one.compact) for one in (opencode, other)]
    redline.next_question(2)
    assert {one["session"] for one in redline.questions} == {str(opencode.path), str(other.path)}
    redline.answer = CONTINUE
    for one in both:
        one.result()
    assert model.conversation == []


# ---- automatic compactions ---------------------------------------------------------------------------------------


def test_at_the_threshold_the_turn_continues_with_what_was_approved(
    redline: StandIn, opencode: AskingOpenCode
) -> None:
    opencode.begin("go on", called("c3", FULL), ModelReply("done"))
    assert redline.next_question()["reason"] == "threshold"
    redline.answer = plan(opencode.part("c1"), opencode.part("c2"))
    opencode.wait_for_requests(2)
    wanted = [*without("c1", "c2"), "go on", "text c3", "c3", "output of c3"]
    assert texts(opencode.model.conversation[-1]) == wanted
    assert opencode.prompt("and on")[: len(wanted)] == wanted
    assert len(redline.questions) == 1
    assert not opencode.is_compacted


def test_after_the_last_reply_of_a_turn_nothing_is_sent_until_the_next_prompt(
    redline: StandIn, opencode: AskingOpenCode
) -> None:
    opencode.begin("go on", ModelReply("done", tokens=FULL))
    assert redline.next_question()["reason"] == "threshold"
    redline.answer = plan(opencode.part("c1"))
    redline.report()
    opencode.wait_for_requests(1)
    assert opencode.prompt("and on") == [*without("c1"), "go on", "done", "and on"]
    assert len(redline.questions) == 1


@pytest.mark.parametrize("is_applied", [False, True], ids=["without compacting", "with what was approved"])
def test_above_the_threshold_opencode_asks_once_in_a_turn(
    redline: StandIn, opencode: AskingOpenCode, is_applied: bool
) -> None:
    decision = plan(opencode.part("c1")) if is_applied else CONTINUE
    redline.answer_to = lambda polls: decision if polls else WAIT
    opencode.begin("go on", called("c3", FULL), called("c4", FULL), ModelReply("done"))
    opencode.wait_for_requests(3)
    assert len(redline.questions) == 1
    redline.answer_to = lambda _polls: CONTINUE
    opencode.begin("and on", called("c5", FULL), ModelReply("done"))
    opencode.wait_for_requests(5)
    assert len(redline.questions) == 2
    assert not opencode.is_compacted


def test_opencode_asks_again_in_a_turn_whose_context_was_shorter_meanwhile(
    redline: StandIn, opencode: AskingOpenCode
) -> None:
    redline.answer_to = lambda polls: CONTINUE if polls else WAIT
    replies = [called("c3", FULL), called("c4"), called("c5", FULL), ModelReply("done")]
    opencode.begin("go on", *replies)
    opencode.wait_for_requests(4)
    assert [one["reason"] for one in redline.questions] == ["threshold", "threshold"]


def test_a_stopped_turn_sends_nothing(redline: StandIn, opencode: AskingOpenCode) -> None:
    redline.answer_to = lambda polls: STOP if polls else WAIT
    opencode.begin("go on", called("c3", FULL))
    wait_until(lambda: STOP["message"] in opencode.notices.shown, "it was not stopped")
    opencode.wait_for_requests(1)
    assert not opencode.is_compacted


def test_after_an_overflow_the_request_is_repeated_with_what_was_approved(
    redline: StandIn, opencode: AskingOpenCode
) -> None:
    opencode.begin("go on", OVERFLOW, ModelReply("now it fits"))
    assert redline.next_question()["reason"] == "overflow"
    redline.answer = plan(opencode.part("c1"))
    opencode.wait_for_requests(2)
    whole, edited = map(texts, opencode.model.conversation)
    assert whole == [*WHOLE, "go on"]
    assert edited == [*without("c1"), "go on"]
    assert not opencode.is_compacted


def test_after_an_overflow_a_request_that_was_not_shortened_is_not_repeated(
    redline: StandIn, opencode: AskingOpenCode
) -> None:
    redline.answer_to = lambda polls: CONTINUE if polls else WAIT
    opencode.begin("go on", OVERFLOW)
    wait_until(lambda: CONTINUE["message"] in opencode.notices.shown, "it was not decided")
    opencode.wait_for_requests(1)
    assert not opencode.is_compacted


def test_a_headless_run_compacts_as_usual(runs: OpencodeRuns, redline: StandIn) -> None:
    replies = [called("c1", FULL), SUMMARY, ModelReply("done")]
    assert len(runs.run("go on", replies).requests) == 3
    assert redline.questions == []


def test_a_subagent_compacts_as_usual(redline: StandIn, opencode: AskingOpenCode) -> None:
    child = opencode.server.call("POST", "/session", {"title": "child", "parentID": opencode.session})["id"]
    opencode.session = child
    opencode.begin("go on", called("c3", FULL), SUMMARY, ModelReply("done"))
    opencode.wait_for_requests(3)
    assert redline.questions == []
    assert opencode.is_compacted


# ---- Redline is gone ---------------------------------------------------------------------------------------------


def stopped(redline: StandIn) -> None:
    redline.stop()


def disconnected(redline: StandIn) -> None:
    redline.connection_file.unlink()


@pytest.mark.parametrize("end", [stopped, disconnected])
def test_without_redline_opencode_compacts_as_usual(
    redline: StandIn, opencode: AskingOpenCode, end: Callable[[StandIn], None]
) -> None:
    end(redline)
    opencode.begin("go on", called("c3", FULL), SUMMARY, ModelReply("done"))
    opencode.wait_for_requests(3)
    opencode.model.replies.append(SUMMARY)
    opencode.compact()
    opencode.wait_for_requests(4)
    assert opencode.is_compacted
    expected = ["Redline was not reached. Compacting as usual."] * 2 if end is stopped else []
    assert opencode.notices.shown[1::2] == expected


def test_an_error_at_first_is_shown_and_opencode_compacts_as_usual(
    redline: StandIn, opencode: AskingOpenCode
) -> None:
    redline.refusal = (400, "Redline does not know this session.")
    opencode.model.replies.append(SUMMARY)
    opencode.compact()
    assert opencode.is_compacted
    assert "Redline does not know this session. Compacting as usual." in opencode.notices.shown


@pytest.mark.parametrize("is_manual", [True, False], ids=["manual", "threshold"])
def test_a_compaction_whose_question_is_lost(
    redline: StandIn, opencode: AskingOpenCode, pool: ThreadPoolExecutor, is_manual: bool
) -> None:
    redline.grace = 0.5
    before = opencode.messages(), opencode.parts()
    if is_manual:
        compaction = pool.submit(opencode.compact)
    else:
        opencode.begin("go on", called("c3", FULL), SUMMARY, ModelReply("done"))
    redline.next_question()
    redline.stop()
    if is_manual:
        compaction.result()
        wait_until(lambda: (opencode.messages(), opencode.parts()) == before, "not as it was before")
        assert "Redline does not answer any more. Nothing was compacted." in opencode.notices.shown
    else:
        opencode.wait_for_requests(3)
        assert opencode.is_compacted
        assert "Redline does not answer any more. Compacting as usual." in opencode.notices.shown


def test_redline_may_restart_while_it_is_waited_for(
    redline: StandIn, opencode: AskingOpenCode, pool: ThreadPoolExecutor
) -> None:
    compaction = pool.submit(opencode.compact)
    redline.next_question()
    redline.stop()
    wait_until(lambda: "Redline does not answer. Asking again." in opencode.notices.shown)
    redline.answer = plan(opencode.part("c1"))
    redline.start(port=0)
    compaction.result()
    assert redline.report()["outcome"] == "applied"
    assert opencode.prompt("go on") == [*without("c1"), "go on"]


# ---- a plan that does not fit ------------------------------------------------------------------------------------


def test_of_a_plan_that_does_not_fit_nothing_is_applied(redline: StandIn, opencode: AskingOpenCode) -> None:
    before = opencode.messages(), opencode.parts()
    missing = {**opencode.part("c2"), "part": "prt_missing"}
    redline.answer = plan(opencode.part("c1"), missing)
    opencode.compact()
    assert redline.report()["outcome"] == "failed"
    assert "no part prt_missing" in redline.report()["message"]
    wait_until(lambda: (opencode.messages(), opencode.parts()) == before, "not as it was before")


def test_a_part_that_cannot_be_changed_takes_those_before_it_back(
    redline: StandIn, opencode: AskingOpenCode
) -> None:
    before = opencode.messages(), opencode.parts()
    redline.answer = plan(opencode.part("c1"), opencode.part("c2", {"type": "no such type"}))
    opencode.compact()
    assert redline.report()["outcome"] == "failed"
    assert "with status 400" in redline.report()["message"]
    wait_until(lambda: (opencode.messages(), opencode.parts()) == before, "not as it was before")


def test_a_session_that_continued_meanwhile_is_a_conflict(
    redline: StandIn, opencode: AskingOpenCode, pool: ThreadPoolExecutor
) -> None:
    compaction = pool.submit(opencode.compact)
    redline.next_question()
    opencode.begin("meanwhile")
    wait_until(lambda: any(data.get("text") == "meanwhile" for _, data in opencode.parts()))
    redline.answer = plan(opencode.part("c1"))
    compaction.result()
    report = redline.report()
    assert report["outcome"] == "failed"
    assert "the session continued while the plan was reviewed" in report["message"]
    assert any(data.get("callID") == "c1" for _, data in opencode.parts())


# ---- the connection ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1:8000", "https://127.0.0.1:8000", "http://localhost.example"]
)
def test_it_sends_to_this_computer_only(redline: StandIn, opencode: AskingOpenCode, url: str) -> None:
    redline.write_connection(url)
    opencode.model.replies.append(SUMMARY)
    opencode.compact()
    assert opencode.is_compacted
    assert "Redline was not reached. Compacting as usual." in opencode.notices.shown


def test_it_follows_no_redirect(redline: StandIn, opencode: AskingOpenCode) -> None:
    redline.location = "http://127.0.0.1:9/elsewhere"
    opencode.model.replies.append(SUMMARY)
    opencode.compact()
    assert opencode.is_compacted
    assert "Redline answered with status 302. Compacting as usual." in opencode.notices.shown


def test_a_second_copy_of_the_bridge_does_not_ask_again(tmp_path: Path, model: ScriptedModel) -> None:
    runs = connected(tmp_path, model)
    file = PluginBridge().path(runs.scratch.home, None)
    file.with_name("again.js").write_bytes(file.read_bytes())
    with StandIn(tmp_path / "connection.json", agent="opencode") as redline, runs.served() as server:
        redline.answer = CONTINUE
        AskingOpenCode(runs, server, model).compact()
    assert len(redline.questions) == 1
    assert model.conversation == []
