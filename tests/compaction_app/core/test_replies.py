"""Replies of the model that are recorded as several entries: their thinking is that of one message."""

from compaction_app.core.airlock import validate
from compaction_app.core.gates import Refusal
from compaction_app.core.transcript import Transcript, prepare
from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.sessionlog.entries import Target, request_of
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.session import ParserState
from tests.claude_sessions import Object, call, reply, result, thinking, timed, user
from tests.sessions_app.agents.claude_code.sent_messages import CURRENT

SESSION = [
    user("p1", None),
    reply("t1", "p1", thinking("T"), of="R"),
    reply("a1", "t1", of="R"),
    reply("c1", "a1", call("c"), of="R"),
    result("x1", "c1", "c"),
    reply("t2", "x1", thinking("U"), of="S"),
    reply("a2", "t2", of="S"),
    reply("b2", "a2", of="S"),
]


def transcript_of(lines: list[Object]) -> Transcript:
    parser = CLAUDE_CODE.format.parser(ParserState(), [])
    recorded = [found for line in split_lines([timed(lines)]) for found in parser.read(line)]
    tree = CLAUDE_CODE.format.tree([found.entry for found in recorded])
    texts = {found.entry.id: found.texts for found in recorded}
    found = prepare(tree.branch(tree.leaf.id), texts, {"preserve_recent": 0}, CURRENT.rules)
    assert found is not None
    return found


def deleted(*entries: str, lines: list[Object] = SESSION) -> list[str] | str:
    """The ids of the entries that go with these, or the code of the refusal."""
    judged = validate(request_of([Target(entry) for entry in entries]), transcript_of(lines))
    return judged.code if isinstance(judged, Refusal) else [target.entry_id for target in judged.targets]


def test_the_thinking_of_the_latest_reply_stays_on_another_line_with_the_last_one_and_earlier_thinking_may_go():
    assert deleted("t2") == deleted("b2") == "latest_thinking"
    assert (deleted("a2"), deleted("t1")) == (["a2"], ["t1"])


def test_thinking_stays_if_a_deletion_makes_its_reply_the_latest():
    failed = reply("e", "b2", isApiErrorMessage=True, message={"model": "<synthetic>"})
    assert deleted("t2", lines=[*SESSION, failed]) == "latest_thinking"
    later = [*SESSION, user("p2", "b2"), reply("a3", "p2", of="V")]
    assert deleted("t2", lines=later) == ["t2"]
    assert deleted("t2", "a3", lines=later) == "latest_thinking"
