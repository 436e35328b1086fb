"""The timeline: each change of a context with what it removed, and the size of the context over its entries."""

from collections.abc import Sequence

import pytest

from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.agents.contexts import Reader
from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.lines import split_lines
from sessions_app.sessionlog.session import ParserState, read_session
from sessions_app.sessionlog.timeline import Timeline, change_at, timeline_of
from tests.claude_sessions import ClaudeSession
from tests.factories import (
    assistant,
    branch_of,
    call,
    chain,
    compaction,
    context_edit,
    result,
    summary_compaction,
    text,
    user,
    whole,
)

TALK = (user("go"), assistant(text("a look"), call("c1")), result("c1", "x" * 400), assistant(text("done")))


def timeline(reader: str, *recorded: dict[str, object]) -> Timeline:
    return timeline_of(branch_of(chain(*recorded)), READERS[reader])


def removed_ids(found: Timeline) -> list[list[str]]:
    return [[message.entry.id for message in point.removed] for point in found.points]


def branch_to(session: ClaudeSession, leaf: str) -> list[Entry]:
    log = read_session(CLAUDE_CODE.parser(ParserState(), []), split_lines([session.content]), "")
    return CLAUDE_CODE.tree(log.entries).branch(leaf)


def noted_summary() -> tuple[list[Entry], str]:
    """A branch with a boundary and, after a note, its summary; and the summary's id."""
    session = ClaudeSession()
    session.user("go")
    session.boundary()
    session.node("system", None, subtype="informational", content="noted")
    summary = session.user("so far", isCompactSummary=True)
    return branch_to(session, session.user("on")), summary


def test_a_context_that_only_grows_has_no_points():
    found = timeline("pi", *TALK)
    assert found.points == ()
    assert list(found.sizes) == sorted(found.sizes)


def test_the_edits_of_one_write_are_one_point():
    found = timeline("pi", *TALK, context_edit("e3", None), context_edit("e2", None), user("on"))
    (point,) = found.points
    assert (point.kind, point.first.id, point.last.id, point.entries) == (EntryKind.EDIT, "e5", "e6", 2)
    assert removed_ids(found) == [["e2", "e3"]]
    assert point.tokens_removed > 100


def test_edits_of_two_writes_are_two_points_although_nothing_is_between_them():
    recorded = result("c1", "x" * 400)
    found = timeline(
        "pi",
        *TALK,
        context_edit("e3", None) | {"timestamp": "2026-01-01T10:00:00.000Z"},
        context_edit("e2", None) | {"timestamp": "2026-01-01T10:00:00.999Z"},
        context_edit("e3", {"content": recorded["content"]}) | {"timestamp": "2026-01-01T10:00:01.000Z"},
    )
    assert [(point.entries, point.returned) for point in found.points] == [(2, 0), (1, 1)]


def test_an_edit_that_names_no_entry_is_no_point():
    found = timeline("pi", *TALK, context_edit("00000000", None), user("on"))
    assert found.points == ()


def test_edits_apart_are_two_points():
    found = timeline("pi", *TALK, context_edit("e3", None), user("on"), context_edit("e2", None))
    assert removed_ids(found) == [["e3"], ["e2"]]


def test_a_lost_block_counts_as_removed():
    found = timeline("pi", *TALK, context_edit("e2", {"content": [text("a look")]}), context_edit("e3", None))
    assert removed_ids(found) == [["e2", "e3"]]


def test_content_that_comes_back_is_counted():
    recorded = result("c1", "x" * 400)
    back = context_edit("e3", {"content": recorded["content"]})
    found = timeline("pi", *TALK, context_edit("e3", None), user("on"), back)
    assert [point.returned for point in found.points] == [0, 1]
    assert found.points[1].tokens_removed < 0


def test_a_summary_removes_what_it_replaces_and_is_not_something_that_returned():
    found = timeline("pi", *TALK, summary_compaction("S", "e4"), user("on"))
    (point,) = found.points
    assert (point.kind, point.returned) == (EntryKind.SUMMARY, 0)
    assert removed_ids(found) == [["e1", "e2", "e3"]]


@pytest.mark.parametrize(
    ("reader", "kinds"), [("atomic-0.8", [EntryKind.DELETION]), ("pi", [EntryKind.EDIT]), ("atomic-0.9", [])]
)
def test_what_the_reader_ignores_is_no_point(reader, kinds):
    found = timeline(reader, *TALK, compaction(whole("e3")), context_edit("e3", None))
    assert [point.kind for point in found.points] == kinds


@pytest.mark.parametrize("reader", ["atomic-0.8", "pi", "atomic-0.9"])
def test_the_last_size_is_the_estimate_of_the_context(reader):
    branch = branch_of(chain(*TALK, compaction(whole("e4")), user("b"), context_edit("e4", None), user("c")))
    found = timeline_of(branch, READERS[reader])
    assert len(found.sizes) == len(branch)
    assert found.sizes[-1] == READERS[reader].rebuild(branch).estimate


def test_an_undo_is_a_point():
    undo = {"type": "custom", "customType": "redline.undo"}
    found = timeline("pi", *TALK, undo, user("on"))
    (point,) = found.points
    assert (point.kind, point.last.id, point.tokens_removed, point.removed) == (EntryKind.UNDO, "e5", 0, ())


def test_a_summary_belongs_to_its_compaction_also_after_entries_that_no_model_sees():
    branch, summary = noted_summary()
    (point,) = timeline_of(branch, CLAUDE_CODE.generations[0].reader).points
    assert point.last.id == summary
    assert [message.entry.id for message in point.added] == [summary]


# ---- one change --------------------------------------------------------------------------------------------


def assert_found_by_each_entry(branch: Sequence[Entry], reader: Reader) -> None:
    """The change at each entry is the point of the timeline that the entry is a part of."""
    places = {entry.id: place for place, entry in enumerate(branch)}
    points = {
        entry.id: point
        for point in timeline_of(branch, reader).points
        for entry in branch[places[point.first.id] : places[point.last.id] + 1]
        if entry.kind is not EntryKind.OTHER
    }
    assert points
    for entry in branch:
        change = change_at(branch, entry.id, reader)
        assert (change.point if change is not None else None) == points.get(entry.id)


def test_a_change_is_found_by_any_entry_of_it():
    edits = context_edit("e4", None), context_edit("e6", None)
    recorded = chain(*TALK, summary_compaction("so far", "e4"), user("on"), *edits)
    assert_found_by_each_entry(branch_of(recorded), READERS["pi"])


def test_a_boundary_is_found_by_the_summary_that_follows_it():
    branch, _ = noted_summary()
    assert_found_by_each_entry(branch, CLAUDE_CODE.generations[0].reader)


def test_a_summary_that_no_boundary_precedes_is_no_change():
    session = ClaudeSession()
    session.boundary()
    session.user("go")
    last = session.user("so far", isCompactSummary=True)
    assert change_at(branch_to(session, last), last, CLAUDE_CODE.generations[0].reader) is None


def test_a_change_knows_what_was_kept_beside_what_it_added():
    rules = {"role": "system", "content": "rules"}
    recorded = chain(rules, *TALK, summary_compaction("so far", "e5") | {"systemMessage": rules})
    change = change_at(branch_of(recorded), "e6", READERS["pi"])
    assert change is not None
    assert [message.entry.id for message in change.kept] == ["e5"]
    assert [message.entry.id for message in change.point.added] == ["e6"]
    assert change_at(branch_of(recorded), "nowhere", READERS["pi"]) is None
