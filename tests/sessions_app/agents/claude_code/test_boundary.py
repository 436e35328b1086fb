"""One appended line deletes from a session, and another one brings it back."""

from __future__ import annotations

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
from sessions_app.sessionlog.targets import Target
from sessions_app.storage.session_loader import load_session
from tests.claude_sessions import SESSION_ID, ClaudeSession, call, text, thinking

from .sent_messages import CURRENT
from .writing import WRITERS, context_ids, context_of, lines_of_file, put, written


def talk() -> tuple[ClaudeSession, dict[str, str]]:
    """Two prompts, the first one with two calls at once. The ids of its lines by what they say."""
    session = ClaudeSession()
    ids = {"p1": session.user("p1"), "env": session.attachment("environment", "where it runs")}
    ids["t1"], ids["s1"], ids["c1"], ids["c2"] = session.reply(
        "m1", thinking("t1"), text("s1"), call("c1"), call("c2")
    )
    ids["r1"] = session.result("c1", "one", parent=ids["c1"])
    ids["r2"] = session.result("c2", "two", parent=ids["c2"])
    (ids["a1"],) = session.reply("m2")
    ids["p2"] = session.user("p2")
    (ids["a2"],) = session.reply("m3")
    return session, ids


def boundary_of(path: Path) -> dict[str, object]:
    line = lines_of_file(path)[-1]
    assert (line["type"], line["subtype"]) == ("system", "compact_boundary")
    return line


def test_one_line_is_appended_that_lists_what_remains_in_the_order_of_the_context(tmp_path: Path) -> None:
    session, ids = talk()
    path = put(session, tmp_path)
    before = path.read_bytes()
    written(path, "boundary", Target(ids["c1"]), Target(ids["r1"]))
    assert path.read_bytes().startswith(before)
    assert len(lines_of_file(path)) == len(session.lines) + 1
    line = boundary_of(path)
    kept = [ids[name] for name in ("p1", "env", "t1", "s1", "c2", "r2", "a1", "p2", "a2")]
    assert line["compactMetadata"]["preservedMessages"] == {
        "anchorUuid": line["uuid"],
        "uuids": kept,
        "allUuids": kept,
    }
    assert context_ids(path) == kept


def test_a_client_that_reads_no_list_finds_the_whole_old_conversation(tmp_path: Path) -> None:
    session, ids = talk()
    path = put(session, tmp_path)
    written(path, "boundary", Target(ids["a1"]))
    line = boundary_of(path)
    segment = {"headUuid": ids["p1"], "anchorUuid": line["uuid"], "tailUuid": ids["a2"]}
    assert line["compactMetadata"]["preservedSegment"] == segment
    assert (line["parentUuid"], line["logicalParentUuid"]) == (None, ids["a2"])


def test_the_segment_does_not_reach_across_an_earlier_compaction(tmp_path: Path) -> None:
    session, _ = talk()
    session.boundary()
    summary = session.user("what was said", isCompactSummary=True)
    (answer,) = session.reply("m4")
    path = put(session, tmp_path)
    written(path, "boundary", Target(answer))
    assert boundary_of(path)["compactMetadata"]["preservedSegment"]["headUuid"] == summary


def test_the_client_finds_every_field_that_its_own_compaction_reads(tmp_path: Path) -> None:
    session, ids = talk()
    path = put(session, tmp_path)
    written(path, "boundary", Target(ids["a1"]))
    metadata = boundary_of(path)["compactMetadata"]
    assert (metadata["trigger"], metadata["cumulativeDroppedTokens"]) == ("manual", 0)
    assert {"preTokens", "postTokens", "durationMs", "preCompactOrganizationsCoverStart"} <= metadata.keys()
    assert boundary_of(path)["sessionId"] == SESSION_ID


def test_what_is_said_after_it_follows_what_remains(tmp_path: Path) -> None:
    session, ids = talk()
    path = put(session, tmp_path)
    written(path, "boundary", Target(ids["a1"]))
    kept = context_ids(path)
    grown = ClaudeSession()
    grown.lines, grown.last = path.read_bytes().splitlines(), ids["a2"]
    later = [grown.user("p3"), *grown.reply("m4")]
    path.write_bytes(grown.content)
    assert context_ids(path) == [*kept, *later]


def test_a_second_one_lists_lines_from_both_sides_of_the_first(tmp_path: Path) -> None:
    session, ids = talk()
    session.boundary(ids["p2"], ids["a2"])
    later = [session.user("p3"), *session.reply("m4"), session.user("p4")]
    path = put(session, tmp_path)
    written(path, "boundary", Target(later[1]))
    assert context_ids(path) == [ids["p2"], ids["a2"], later[0], later[2]]


def test_the_lines_that_a_compaction_kept_stay_between_its_summary_and_what_follows(tmp_path: Path) -> None:
    session, ids = talk()
    boundary = session.new_id()
    summary = f"{boundary[:-12]}{len(session.lines) + 1:012}"
    session.boundary(ids["p2"], ids["a2"], anchor=summary)
    assert session.user("what was said", isCompactSummary=True) == summary
    (later,) = session.reply("m4")
    path = put(session, tmp_path)
    assert context_ids(path) == [summary, ids["p2"], ids["a2"], later]
    written(path, "boundary", Target(ids["a2"]))
    assert context_ids(path) == [summary, ids["p2"], later]


@pytest.mark.parametrize("back", [("a1",), ("c2", "r2"), ("a1", "c2", "r2")], ids="-".join)
def test_another_one_brings_lines_back_at_their_places(tmp_path: Path, back: tuple[str, ...]) -> None:
    session, ids = talk()
    path = put(session, tmp_path)
    whole = context_of(path)
    names = list(ids)
    written(path, "boundary", Target(ids["a1"]), Target(ids["c2"]), Target(ids["r2"]))
    grown = ClaudeSession()
    grown.lines, grown.last = path.read_bytes().splitlines(), ids["a2"]
    later = [grown.user("p3"), *grown.reply("m4")]
    path.write_bytes(grown.content)

    loaded = load_session(path)
    sought = [message for message in whole.messages if message.entry.id in {ids[name] for name in back}]
    assert CURRENT.restore_lines is not None
    with lines_of(loaded) as line:
        facts = write_facts(loaded, line, path, WRITTEN_AT)
        (added,) = CURRENT.restore_lines(loaded.tree.branch(loaded.leaf_id), sought, {}, facts)
    with path.open("ab") as file:
        file.write(added + b"\n")

    left = [ids[name] for name in names if name in back or name not in ("a1", "c2", "r2")]
    assert context_ids(path) == [*left, *later]


def test_a_line_with_several_blocks_is_left_to_the_fork(tmp_path: Path) -> None:
    session = ClaudeSession()
    session.user("p1")
    session.assistant("m1", text("s1"), call("c1"))
    both = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
        {"type": "text", "text": "and more"},
    ]
    session.node("user", None, message={"role": "user", "content": both})
    path = put(session, tmp_path)
    loaded = load_session(path)
    protected = {
        entry.id: (WRITERS["boundary"].protection(entry), WRITERS["fork"].protection(entry))
        for entry in loaded.tree.branch(loaded.leaf_id)
    }
    free, refused = (None, None), (Protection.NOT_EDITABLE, None)
    assert list(protected.values()) == [free, refused, refused, refused]


def test_the_boundary_is_a_compaction_for_the_reader(tmp_path: Path) -> None:
    session, ids = talk()
    path = put(session, tmp_path)
    written(path, "boundary", Target(ids["a1"]))
    newest = context_of(path).newest_compaction
    assert newest is not None
    assert newest.kind is EntryKind.BOUNDARY


def test_a_line_without_an_id_cannot_be_listed(tmp_path: Path) -> None:
    session, ids = talk()
    session.lines[0] = session.lines[0].replace(f'"uuid": "{ids["p1"]}", '.encode(), b"")
    path = put(session, tmp_path)
    assert context_ids(path)[0] == "line-1"
    with pytest.raises(BadInput) as failure:
        written(path, "boundary", Target(ids["a1"]))
    assert failure.value.code == "no_line_id"


def refusal_after(*versions: object) -> str:
    """Why a boundary is refused to a session of lines with these versions; None for a line without one."""
    session = ClaudeSession()
    for version in versions:
        session.user("said", version=version)
        if version is None:
            session.lines[-1] = session.lines[-1].replace(b', "version": null', b"")
    parser = CLAUDE_CODE.parser(ParserState(), [])
    for line in split_lines([session.content]):
        parser.read(line)
    reading = Reading(CLAUDE_CODE, CURRENT, "").of_session(parser.state)
    assert [writer.name for writer in reading.writers][-1] == "fork"
    assert ("boundary" in reading.refused) == (reading.writer().name == "fork")
    return reading.refused.get("boundary", "")


@pytest.mark.parametrize(
    "versions",
    [["2.1.143"], ["2.1.330"], ["2.2.0"], ["2.1.112", "2.1.143"], ["2.1.330", None], ["nightly", "10.0.0"]],
)
def test_a_session_that_a_new_client_continued_last_can_have_a_boundary(versions: list[object]) -> None:
    assert not refusal_after(*versions)


@pytest.mark.parametrize("versions", [["2.1.142"], ["2.1.330", "2.1.112"], ["2.1.330", "2.1.112", None]])
def test_a_session_that_an_old_client_continued_last_gets_none(versions: list[object]) -> None:
    last = next(version for version in reversed(versions) if version is not None)
    assert f"version {last} of Claude Code, and no version before 2.1.143" in refusal_after(*versions)


@pytest.mark.parametrize(
    "versions",
    [
        [None],
        ["2.1.330", "nightly"],
        ["2.1.330", ""],
        ["2.1.330", "2.1.330-beta.1"],
        ["2.1.330", "2.1"],
        ["2.1.330", "9" * 5_000 + ".0.0"],
        ["2.1.330", "٢.١.٣٣٠"],
        ["2.1.330", 3],
        ["2.1.330", ["2.1.330"]],
    ],
    ids=lambda versions: repr(versions[-1])[:12].encode("ascii", "replace").decode(),
)
def test_a_session_that_does_not_show_its_last_client_gets_none(versions: list[object]) -> None:
    assert "does not show which version continued it last" in refusal_after(*versions)


def test_what_stands_beside_the_conversation_shows_no_client() -> None:
    session = ClaudeSession()
    session.user("said", version="2.1.112")
    session.beside(type="custom-title", customTitle="named later", version="2.1.330")
    parser = CLAUDE_CODE.parser(ParserState(), [])
    for line in split_lines([session.content]):
        parser.read(line)
    assert "boundary" in CLAUDE_CODE.refused_writers(parser.state)


def test_a_line_without_its_end_shows_no_client_yet() -> None:
    session = ClaudeSession()
    session.user("said", version="2.1.112")
    session.user("said", version="2.1.330")
    parser = CLAUDE_CODE.parser(ParserState(), [])
    for line in split_lines([session.content.rstrip()]):
        parser.read(line)
    assert "boundary" in CLAUDE_CODE.refused_writers(parser.state)


def test_a_client_that_never_honours_a_boundary_is_not_said_to_refuse_one() -> None:
    reading = Reading(CLAUDE_CODE, CLAUDE_CODE.generations[1], "").of_session(ParserState())
    assert not reading.refused
    with pytest.raises(BadInput, match="does not honour the writer boundary"):
        reading.writer("boundary")
