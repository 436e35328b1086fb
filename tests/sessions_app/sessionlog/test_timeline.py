"""The timeline: each change of a context with what it removed, and the size of the context over its entries."""

from collections.abc import Sequence
from typing import Any

import pytest

from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.agents.pure.formats import Reader
from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.session import ParserState, read_session
from sessions_app.sessionlog.timeline import change_at, timeline_of
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
DAY = "2026-01-01T10:00:"


def branch_to(session: ClaudeSession, leaf: str) -> list[Entry]:
    log = read_session(CLAUDE_CODE.format.parser(ParserState(), []), split_lines([session.content]), "")
    return CLAUDE_CODE.format.tree(log.entries).branch(leaf)


def noted_summary() -> tuple[list[Entry], str]:
    """A branch with a boundary and, after a note, its summary; and the summary's id."""
    session = ClaudeSession("go")
    session.boundary()
    session.node("system", None, subtype="informational", content="noted")
    summary = session.user("so far", isCompactSummary=True)
    return branch_to(session, session.user("on")), summary


def omit(target: str, **fields: Any) -> dict[str, Any]:
    return context_edit(target, None) | fields


ON = user("on")
BACK = context_edit("e3", {"content": [text("x" * 400)]})
DELETION, EDIT, SUMMARY, UNDO = EntryKind.DELETION, EntryKind.EDIT, EntryKind.SUMMARY, EntryKind.UNDO
IGNORED = (compaction(whole("e3")), omit("e3"))
CHANGES = {
    # What follows the conversation, and its points: the kind, the entries removed, and how many messages returned.
    "a context that only grows": ("pi", (), []),
    "the edits of one write": ("pi", (omit("e3"), omit("e2"), ON), [(EDIT, "e2 e3", 0)]),
    "edits of two writes with nothing between them": (
        "pi",
        (
            omit("e3", timestamp=f"{DAY}00.000Z"),
            omit("e2", timestamp=f"{DAY}00.999Z"),
            BACK | {"timestamp": f"{DAY}01.000Z"},
        ),
        [(EDIT, "e2 e3", 0), (EDIT, "", 1)],
    ),
    "an edit that names no entry": ("pi", (omit("00000000"), ON), []),
    "edits apart": ("pi", (omit("e3"), ON, omit("e2")), [(EDIT, "e3", 0), (EDIT, "e2", 0)]),
    "a lost block": ("pi", (context_edit("e2", {"content": [text("a look")]}), omit("e3")), [(EDIT, "e2 e3", 0)]),
    "content that comes back": ("pi", (omit("e3"), ON, BACK), [(EDIT, "e3", 0), (EDIT, "", 1)]),
    "a summary": ("pi", (summary_compaction("S", "e4"), ON), [(SUMMARY, "e1 e2 e3", 0)]),
    "an undo": ("pi", ({"type": "custom", "customType": "redline.undo"}, ON), [(UNDO, "", 0)]),
    "an edit that Atomic ignores": ("atomic-0.8", IGNORED, [(DELETION, "e3", 0)]),
    "a deletion that pi ignores": ("pi", IGNORED, [(EDIT, "e3", 0)]),
    "what newer Atomic ignores": ("atomic-0.9", IGNORED, []),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_changes_are_points(name):
    reader, then, expected = CHANGES[name]
    found = timeline_of(branch_of(chain(*TALK, *then)), READERS[reader])
    points = [(one.kind, " ".join(message.entry.id for message in one.removed), one.returned) for one in found.points]
    assert points == expected
    assert then or list(found.sizes) == sorted(found.sizes)


def test_a_point_has_its_first_and_last_entry_and_the_tokens_that_it_removed():
    (edits,) = timeline_of(branch_of(chain(*TALK, omit("e3"), omit("e2"), ON)), READERS["pi"]).points
    assert (edits.first.id, edits.last.id, edits.entries) == ("e5", "e6", 2)
    assert edits.tokens_removed > 100
    _, back = timeline_of(branch_of(chain(*TALK, omit("e3"), ON, BACK)), READERS["pi"]).points
    assert (back.entries, back.tokens_removed < 0) == (1, True)
    undone = chain(*TALK, {"type": "custom", "customType": "redline.undo"}, ON)
    (undo,) = timeline_of(branch_of(undone), READERS["pi"]).points
    assert (undo.last.id, undo.tokens_removed) == ("e5", 0)


@pytest.mark.parametrize("reader", ["atomic-0.8", "pi", "atomic-0.9"])
def test_the_last_size_is_the_estimate_of_the_context(reader):
    branch = branch_of(chain(*TALK, compaction(whole("e4")), user("b"), omit("e4"), user("c")))
    found = timeline_of(branch, READERS[reader])
    assert len(found.sizes) == len(branch)
    assert found.sizes[-1] == READERS[reader].rebuild(branch).estimate


def test_a_summary_belongs_to_its_compaction_also_after_entries_that_no_model_sees():
    branch, summary = noted_summary()
    (point,) = timeline_of(branch, CLAUDE_CODE.format.generations[0].reader).points
    assert point.last.id == summary
    assert [message.entry.id for message in point.added] == [summary]


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


def test_a_change_is_found_by_any_entry_of_it_and_by_the_summary_that_follows_its_boundary():
    recorded = chain(*TALK, summary_compaction("so far", "e4"), ON, omit("e4"), omit("e6"))
    assert_found_by_each_entry(branch_of(recorded), READERS["pi"])
    branch, _ = noted_summary()
    assert_found_by_each_entry(branch, CLAUDE_CODE.format.generations[0].reader)


def test_a_summary_that_no_boundary_precedes_is_no_change():
    session = ClaudeSession()
    session.boundary()
    session.user("go")
    last = session.user("so far", isCompactSummary=True)
    assert change_at(branch_to(session, last), last, CLAUDE_CODE.format.generations[0].reader) is None


def test_a_change_knows_what_was_kept_beside_what_it_added():
    rules = {"role": "system", "content": "rules"}
    recorded = chain(rules, *TALK, summary_compaction("so far", "e5") | {"systemMessage": rules})
    change = change_at(branch_of(recorded), "e6", READERS["pi"])
    assert [message.entry.id for message in change.kept] == ["e5"]
    assert [message.entry.id for message in change.point.added] == ["e6"]
    assert change_at(branch_of(recorded), "nowhere", READERS["pi"]) is None
