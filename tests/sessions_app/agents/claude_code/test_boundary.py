"""One appended line deletes from a session, and another one brings it back."""

from pathlib import Path

import pytest

from compaction_app.commit.change import lines_of, write_facts
from devtools.bench.written_plans import WRITTEN_AT
from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.agents.reading import Reading
from sessions_app.sessionlog.entries import EntryKind
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.lines import split_lines
from sessions_app.sessionlog.protection import Protection
from sessions_app.sessionlog.session import ParserState
from sessions_app.storage.session_loader import load_session
from tests.claude_sessions import SESSION_ID, ClaudeSession, answer, call, text

from .sent_messages import CURRENT
from .writing import WRITERS, Talk, context_ids, context_of, lines_of_file, put


@pytest.fixture
def talk(tmp_path):
    return Talk(tmp_path)


def boundary_of(path: Path) -> dict[str, object]:
    line = lines_of_file(path)[-1]
    assert (line["type"], line["subtype"]) == ("system", "compact_boundary")
    return line


def test_one_line_is_appended_that_lists_what_remains_in_the_order_of_the_context(talk):
    before = talk.put().read_bytes()
    path = talk.deleted(talk["c1"], talk["r1"])
    assert path.read_bytes().startswith(before)
    assert len(lines_of_file(path)) == len(talk.session.lines) + 1
    line = boundary_of(path)
    kept = [talk[name] for name in ("p1", "env", "t1", "s1", "c2", "r2", "a1", "p2", "a2")]
    listed = {"anchorUuid": line["uuid"], "uuids": kept, "allUuids": kept}
    assert line["compactMetadata"]["preservedMessages"] == listed
    assert context_ids(path) == kept


def test_a_client_that_reads_no_list_finds_the_whole_old_conversation(talk):
    line = boundary_of(talk.deleted(talk["a1"]))
    segment = {"headUuid": talk["p1"], "anchorUuid": line["uuid"], "tailUuid": talk["a2"]}
    assert line["compactMetadata"]["preservedSegment"] == segment
    assert (line["parentUuid"], line["logicalParentUuid"]) == (None, talk["a2"])


def test_the_segment_does_not_reach_across_an_earlier_compaction(talk):
    talk.session.boundary()
    summary = talk.session.user("what was said", isCompactSummary=True)
    (answer,) = talk.session.reply("m4")
    assert boundary_of(talk.deleted(answer))["compactMetadata"]["preservedSegment"]["headUuid"] == summary


def test_the_client_finds_every_field_that_its_own_compaction_reads(talk):
    path = talk.deleted(talk["a1"])
    metadata = boundary_of(path)["compactMetadata"]
    assert (metadata["trigger"], metadata["cumulativeDroppedTokens"]) == ("manual", 0)
    assert {"preTokens", "postTokens", "durationMs", "preCompactOrganizationsCoverStart"} <= metadata.keys()
    assert boundary_of(path)["sessionId"] == SESSION_ID
    newest = context_of(path).newest_compaction
    assert newest is not None
    assert newest.kind is EntryKind.BOUNDARY


def test_what_is_said_after_it_follows_what_remains(talk):
    path = talk.deleted(talk["a1"])
    kept = context_ids(path)
    later = talk.continued(path)
    assert context_ids(path) == [*kept, *later]


def test_a_second_one_lists_lines_from_both_sides_of_the_first(talk):
    talk.session.boundary(talk["p2"], talk["a2"])
    later = [talk.session.user("p3"), *talk.session.reply("m4"), talk.session.user("p4")]
    assert context_ids(talk.deleted(later[1])) == [talk["p2"], talk["a2"], later[0], later[2]]


def test_the_lines_that_a_compaction_kept_stay_between_its_summary_and_what_follows(talk):
    boundary = talk.session.new_id()
    summary = f"{boundary[:-12]}{len(talk.session.lines) + 1:012}"
    talk.session.boundary(talk["p2"], talk["a2"], anchor=summary)
    assert talk.session.user("what was said", isCompactSummary=True) == summary
    (later,) = talk.session.reply("m4")
    assert context_ids(talk.put()) == [summary, talk["p2"], talk["a2"], later]
    assert context_ids(talk.deleted(talk["a2"])) == [summary, talk["p2"], later]


@pytest.mark.parametrize("back", [("a1",), ("c2", "r2"), ("a1", "c2", "r2")], ids="-".join)
def test_another_one_brings_lines_back_at_their_places(talk, back):
    whole = context_of(talk.put())
    path = talk.deleted(talk["a1"], talk["c2"], talk["r2"])
    later = talk.continued(path)
    loaded = load_session(path)
    sought = [message for message in whole.messages if message.entry.id in {talk[name] for name in back}]
    assert CURRENT.restore_lines is not None
    with lines_of(loaded) as line:
        facts = write_facts(loaded, line, path, WRITTEN_AT)
        (added,) = CURRENT.restore_lines(loaded.tree.branch(loaded.leaf_id), sought, {}, facts)
    with path.open("ab") as file:
        file.write(added + b"\n")
    left = [line for name, line in talk.ids.items() if name in back or name not in ("a1", "c2", "r2")]
    assert context_ids(path) == [*left, *later]


def test_a_line_with_several_blocks_is_left_to_the_fork(tmp_path):
    session = ClaudeSession()
    session.user("p1")
    session.assistant("m1", text("s1"), call("c1"))
    session.node("user", None, message={"role": "user", "content": [answer("c1", "one"), text("and more")]})
    path = put(session, tmp_path)
    loaded = load_session(path)
    protected = {
        entry.id: (WRITERS["boundary"].protection(entry), WRITERS["fork"].protection(entry))
        for entry in loaded.tree.branch(loaded.leaf_id)
    }
    free, refused = (None, None), (Protection.NOT_EDITABLE, None)
    assert list(protected.values()) == [free, refused, refused, refused]


def test_a_line_without_an_id_cannot_be_listed(talk):
    talk.session.lines[0] = talk.session.lines[0].replace(f'"uuid": "{talk["p1"]}", '.encode(), b"")
    assert context_ids(talk.put())[0] == "line-1"
    with pytest.raises(BadInput) as failure:
        talk.deleted(talk["a1"])
    assert failure.value.code == "no_line_id"


def state_after(session: ClaudeSession) -> ParserState:
    parser = CLAUDE_CODE.parser(ParserState(), [])
    for line in split_lines([session.content]):
        parser.read(line)
    return parser.state


def refusal_after(*versions: object) -> str:
    """Why a boundary is refused to a session of lines with these versions; None for a line without one."""
    session = ClaudeSession()
    for version in versions:
        session.user("said", version=version)
        if version is None:
            session.lines[-1] = session.lines[-1].replace(b', "version": null', b"")
    reading = Reading(CLAUDE_CODE, CURRENT, "").of_session(state_after(session))
    assert [writer.name for writer in reading.writers][-1] == "fork"
    assert ("boundary" in reading.refused) == (reading.writer().name == "fork")
    return reading.refused.get("boundary", "")


def test_a_session_that_a_new_client_continued_last_can_have_a_boundary_and_one_of_an_old_client_none():
    for versions in (["2.1.143"], ["2.1.330"], ["2.2.0"], ["2.1.112", "2.1.143"], ["2.1.330", None]):
        assert not refusal_after(*versions), versions
    assert not refusal_after("nightly", "10.0.0")
    for version, *more in (["2.1.142"], ["2.1.112"], ["2.1.112", None]):
        refusal = refusal_after("2.1.330", version, *more)
        assert f"version {version} of Claude Code, and no version before 2.1.143" in refusal


HUGE, OTHER_DIGITS = "9" * 5_000 + ".0.0", "٢.١.٣٣٠"


@pytest.mark.parametrize(
    "version",
    [None, "nightly", "", "2.1.330-beta.1", "2.1", HUGE, OTHER_DIGITS, 3, ["2.1.330"]],
    ids=lambda version: repr(version)[:12].encode("ascii", "replace").decode(),
)
def test_a_session_that_does_not_show_its_last_client_gets_none(version):
    before = () if version is None else ("2.1.330",)
    assert "does not show which version continued it last" in refusal_after(*before, version)


def test_neither_what_stands_beside_the_conversation_nor_an_unfinished_line_shows_a_client():
    session = ClaudeSession()
    session.user("said", version="2.1.112")
    session.beside(type="custom-title", customTitle="named later", version="2.1.330")
    assert "boundary" in CLAUDE_CODE.refused_writers(state_after(session))
    session.user("said", version="2.1.330")
    assert "boundary" not in CLAUDE_CODE.refused_writers(state_after(session))
    parser = CLAUDE_CODE.parser(ParserState(), [])
    for line in split_lines([session.content.rstrip()]):
        parser.read(line)
    assert "boundary" in CLAUDE_CODE.refused_writers(parser.state)


def test_a_client_that_never_honours_a_boundary_is_not_said_to_refuse_one():
    reading = Reading(CLAUDE_CODE, CLAUDE_CODE.generations[1], "").of_session(ParserState())
    assert not reading.refused
    with pytest.raises(BadInput, match="does not honour the writer boundary"):
        reading.writer("boundary")
