"""Where a note stands among what stays of a session."""

import pytest

from sessions_app.agents.notes import notes_before
from sessions_app.sessionlog.entries import Block, BlockType, Entry, EntryKind, Role


def entry(name: str, role: str = Role.ASSISTANT, *, calls: str = "", thinks: bool = False, reply: str = "") -> Entry:
    """An entry by its name. Of a result, `calls` is the call that it answers."""
    kinds = [BlockType.THINKING] * thinks + [BlockType.TOOL_CALL] * len(calls.split())
    is_result = role == Role.TOOL_RESULT
    blocks = tuple(
        Block(index, kind, 1, 1, call_id=call)
        for index, (kind, call) in enumerate(zip(kinds, [None] * thinks + calls.split(), strict=False))
    )
    content = {"result_for": calls} if is_result else {"blocks": blocks}
    return Entry(0, 0, 0, name, None, "message", kind=EntryKind.MESSAGE, role=role, reply=reply, **content)


PROMPT, GONE, END = entry("prompt", Role.USER), entry("gone"), entry("end")
ONE, TWO = (entry(f"result of {name}", Role.TOOL_RESULT, calls=name) for name in ("c1", "c2"))


@pytest.mark.parametrize(
    ("staying", "before"),
    [
        pytest.param([END], "end", id="what comes next"),
        pytest.param([], None, id="at the end"),
        pytest.param([ONE, END], "end", id="after a result"),
        pytest.param([entry("calls", calls="c2"), TWO, END], "calls", id="before a call"),
    ],
)
def test_a_note_stands_before_what_may_follow_it(staying, before):
    call = entry("call", calls="c1")
    order = [PROMPT, call, GONE, *staying]
    kept = {one.id for one in order} - {GONE.id}
    assert notes_before(order, kept, {GONE.id: "words"}) == {before: ["words"]}


@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param(entry("calls", calls="c1 c2"), [ONE, TWO], id="between a call and its results"),
        pytest.param(entry("calls", calls="c1"), [entry("added", Role.CUSTOM), ONE], id="before a late result"),
        pytest.param(entry("thinks", thinks=True), [entry("says")], id="between reasoning and what it led to"),
        pytest.param(entry("a", reply="m1"), [entry("b", reply="m1")], id="within a reply"),
        pytest.param(entry("calls", calls="c1"), [], id="after a call that nothing answers"),
    ],
)
def test_no_note_divides_what_belongs_together(first, then):
    order = [PROMPT, first, GONE, *then, END]
    kept = {one.id for one in order} - {GONE.id}
    assert notes_before(order, kept, {GONE.id: "words"}) == {"end": ["words"]}


def test_a_writer_says_what_else_may_not_follow_a_note():
    order = [GONE, entry("a"), END]
    found = notes_before(order, {"a", "end"}, {"gone": "words"}, lambda one: one.id != "a")
    assert found == {"end": ["words"]}


def test_notes_keep_their_order_and_those_without_a_place_between_them_stand_together():
    order = [PROMPT, GONE, entry("gone too"), END, entry("last")]
    notes = {"gone": "one", "gone too": "two", "last": "three"}
    assert notes_before(order, {"prompt", "end"}, notes) == {"end": ["one", "two"], None: ["three"]}
    assert notes_before(order, {"prompt", "end"}, {}) == {}
