"""Where a note stands among what stays of a session."""

import pytest

from sessions_app.agents.pure.formats import notes_before
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
CALL, CALLS = entry("call", calls="c1"), entry("calls", calls="c2")


@pytest.mark.parametrize(
    ("first", "then", "before"),
    [
        pytest.param(CALL, [END], "end", id="before what comes next"),
        pytest.param(CALL, [], None, id="at the end"),
        pytest.param(CALL, [ONE, END], "end", id="after a result"),
        pytest.param(CALL, [CALLS, TWO, END], "calls", id="before a call"),
        pytest.param(CALL, [entry("added", Role.CUSTOM), ONE, END], "end", id="after a late result"),
        pytest.param(entry("calls", calls="c1 c2"), [ONE, TWO, END], "end", id="not between a call and its results"),
        pytest.param(entry("thinks", thinks=True), [entry("says"), END], "end", id="not between reasoning and words"),
        pytest.param(entry("a", reply="m1"), [entry("b", reply="m1"), END], "end", id="not within a reply"),
    ],
)
def test_a_note_stands_where_it_divides_nothing_that_belongs_together(first, then, before):
    order = [PROMPT, first, GONE, *then]
    kept = {one.id for one in order} - {GONE.id}
    assert notes_before(order, kept, {GONE.id: "words"}) == {before: ["words"]}


def test_a_writer_says_what_else_may_not_follow_a_note():
    order = [GONE, entry("a"), END]
    assert notes_before(order, {"a", "end"}, {"gone": "words"}, lambda one: one.id != "a") == {"end": ["words"]}


def test_notes_keep_their_order_and_those_without_a_place_between_them_stand_together():
    order = [PROMPT, GONE, entry("gone too"), END, entry("last")]
    notes = {"gone": "one", "gone too": "two", "last": "three"}
    assert notes_before(order, {"prompt", "end"}, notes) == {"end": ["one", "two"], None: ["three"]}
    assert notes_before(order, {"prompt", "end"}, {}) == {}
