"""Promises of the readers: each agent's own reading of one and the same file."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.agents.registry import READERS, choose_reader, reader_named
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import EntryKind
from sessions_app.sessionlog.errors import BadInput
from tests.factories import (
    assistant,
    bash,
    block,
    branch_of,
    call,
    chain,
    compaction,
    context_edit,
    result,
    session_log,
    summary_compaction,
    text,
    thinking,
    user,
    whole,
)

SYSTEM = {"role": "system", "content": "be kind"}


def rebuilt(reader: str, *messages: dict[str, Any]) -> ActiveContext:
    return reader_named(reader).rebuild(branch_of(chain(*messages)))


def ids(context: ActiveContext) -> list[str]:
    return [one.entry.id for one in context.messages]


# ---- both ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", READERS)
def test_a_plain_branch_is_the_same_for_every_reader(reader: str) -> None:
    context = rebuilt(
        reader,
        {"type": "model_change", "provider": "p", "modelId": "m"},
        user("x"),
        assistant(text("y"), call("c1")),
        result("c1"),
        bash("ls", ""),
        {"type": "custom_message", "content": "z"},
        {"type": "branch_summary", "summary": "earlier"},
        {"type": "branch_summary", "summary": ""},
        {"type": "label", "targetId": "e2", "label": "here"},
        {"type": "custom", "data": {}},
        {"type": "from_the_future"},
    )
    assert ids(context) == ["e2", "e3", "e4", "e5", "e6", "e7"]
    assert [one.role for one in context.messages] == [
        *("user", "assistant", "toolResult", "bashExecution", "custom", "branchSummary")
    ]
    assert context.newest_compaction is None
    assert context.reader == reader


@pytest.mark.parametrize("reader", READERS)
def test_what_is_excluded_is_rebuilt_and_not_sent(reader: str) -> None:
    context = rebuilt(reader, user("x"), bash("ls", "", excludeFromContext=True))
    assert [(one.entry.id, one.sent) for one in context.messages] == [("e1", True), ("e2", False)]


@pytest.mark.parametrize("reader", READERS)
def test_what_survives_is_what_was_recorded(reader: str) -> None:
    branch = branch_of(chain(user("x"), assistant(thinking("t"), text("y"))))
    context = READERS[reader].rebuild(branch)
    assert [one.entry for one in context.messages] == branch
    assert [one.blocks for one in context.messages] == [entry.blocks for entry in branch]
    assert not any(one.replaced for one in context.messages)


# ---- Atomic -------------------------------------------------------------------------------------------------


def test_atomic_leaves_out_what_a_context_compaction_names_and_nothing_else() -> None:
    context = rebuilt(
        "atomic-0.8",
        user("x"),
        assistant(text("a"), text("b")),
        user("y"),
        compaction(whole("e1"), block("e2", 0)),
    )
    assert ids(context) == ["e2", "e3"]
    assert context.messages[0].blocks is not None
    assert [block.index for block in context.messages[0].blocks] == [1]
    assert context.newest_compaction is not None
    assert context.newest_compaction.id == "e4"


def test_to_atomic_the_entries_of_other_agents_are_inert() -> None:
    context = rebuilt(
        "atomic-0.8", user("x"), user("y"), summary_compaction("s", "e2"), context_edit("e1", None), user("z")
    )
    assert ids(context) == ["e1", "e2", "e5"]
    assert context.newest_compaction is None


# ---- pi -----------------------------------------------------------------------------------------------------


def test_to_pi_a_context_compaction_is_inert() -> None:
    context = rebuilt("pi", user("x"), compaction(whole("e1")), user("y"))
    assert ids(context) == ["e1", "e3"]
    assert context.newest_compaction is None


def test_pi_puts_the_summary_first_then_what_it_kept_then_what_came_after() -> None:
    context = rebuilt("pi", user("a"), user("b"), user("c"), summary_compaction("1234", "e2"), user("d"))
    assert ids(context) == ["e4", "e2", "e3", "e5"]
    assert (context.messages[0].role, context.messages[0].tokens) == ("compactionSummary", 1)
    assert context.newest_compaction is not None
    assert context.newest_compaction.id == "e4"


@pytest.mark.parametrize("first_kept", ["nowhere", "", None, 7, ["e1"], "e4"])
def test_without_an_entry_to_keep_from_pi_keeps_nothing_before_the_summary(first_kept: Any) -> None:
    assert ids(rebuilt("pi", user("a"), user("b"), summary_compaction("s", first_kept), user("c"))) == [
        "e3",
        "e4",
    ]


def test_an_older_compaction_contributes_nothing() -> None:
    older, newer = summary_compaction("old", "e1"), summary_compaction("new", "e2")
    assert ids(rebuilt("pi", user("a"), user("b"), older, user("c"), newer, user("d"))) == [
        "e5",
        "e2",
        "e4",
        "e6",
    ]
    # Kept from the older one on: it is left out all the same.
    newer = summary_compaction("new", "e3")
    assert ids(rebuilt("pi", user("a"), user("b"), older, user("c"), newer)) == ["e5", "e4"]


def test_system_messages_are_dropped_from_what_is_kept_and_from_nowhere_else() -> None:
    assert ids(rebuilt("pi", SYSTEM, user("a"), SYSTEM, summary_compaction("s", "e1"), SYSTEM)) == [
        "e4",
        "e2",
        "e5",
    ]
    assert ids(rebuilt("pi", SYSTEM, user("a"))) == ["e1", "e2"]


def test_a_compaction_on_another_branch_is_not_this_branchs() -> None:
    recorded = chain(user("a"), summary_compaction("s", "nowhere"), user("b"))
    recorded[-1]["parentId"] = "e1"
    assert ids(READERS["pi"].rebuild(branch_of(recorded))) == ["e1", "e3"]


def test_an_edit_to_nothing_omits_its_target() -> None:
    for nothing in (None, "text", 7, []):
        context = rebuilt("pi", user("a"), user("b"), context_edit("e1", nothing))
        assert ids(context) == ["e2"]
        assert context.newest_compaction is not None
        assert context.newest_compaction.id == "e3"


def test_an_edit_puts_its_content_in_the_place_of_what_was_recorded() -> None:
    recorded = (user("long " * 100), assistant(thinking("t"), text("a")), result("c1", "b" * 400))
    for target, role, blocks in (
        ("e1", "user", None),
        ("e2", "assistant", ["text"]),
        ("e3", "toolResult", ["text"]),
    ):
        context = rebuilt("pi", *recorded, context_edit(target, {"content": "12345"}))
        (changed,) = [one for one in context.messages if one.replaced]
        assert (changed.entry.id, changed.role, changed.tokens) == (target, role, 2)
        assert (changed.blocks and [block.type for block in changed.blocks]) == blocks
        assert ids(context) == ["e1", "e2", "e3"]


def test_an_edit_to_a_list_weighs_its_blocks() -> None:
    image = {"type": "image", "data": "x"}
    context = rebuilt("pi", result("c1", "b" * 400), context_edit("e1", {"content": [text("12345"), image]}))
    assert context.messages[0].blocks is not None
    assert [block.type for block in context.messages[0].blocks] == ["text", "image"]
    assert context.messages[0].tokens == 1202


def test_the_latest_edit_of_a_target_wins() -> None:
    edits = (
        context_edit("e1", None),
        context_edit("e1", {"content": "12345678"}),
        context_edit("e1", {"content": "1"}),
    )
    assert rebuilt("pi", user("a"), *edits).messages[0].tokens == 1
    assert ids(rebuilt("pi", user("a"), *edits[::-1])) == []


def test_only_edits_among_the_selected_entries_count() -> None:
    assert ids(
        rebuilt("pi", user("a"), context_edit("e1", None), user("b"), summary_compaction("s", "e1"))
    ) == ["e4", "e3"]
    assert ids(rebuilt("pi", context_edit("e2", None), user("a"), summary_compaction("s", "e2"))) == [
        "e3",
        "e2",
    ]


@pytest.mark.parametrize("target", [None, 7, ["e1"], {}, "nowhere"])
def test_an_edit_of_nothing_that_is_there_changes_nothing(target: Any) -> None:
    assert ids(rebuilt("pi", user("a"), context_edit(target, None))) == ["e1"]


def test_a_summary_can_be_edited_too() -> None:
    context = rebuilt(
        "pi",
        user("a"),
        summary_compaction("long " * 100, "nowhere"),
        context_edit("e2", {"content": "12345"}),
    )
    assert [(one.role, one.tokens, one.replaced) for one in context.messages] == [
        ("compactionSummary", 2, True)
    ]


# ---- which one ----------------------------------------------------------------------------------------------

USAGE = {"type": "usage", "kind": "summary", "provider": "p", "model": "m", "usage": {"input": 1}}
THOUGHTFUL = {**assistant(text("so")), "thinkingLevel": "high"}
"""What pi writes from 0.86 on, and no other agent."""
VERBATIM = {"type": "compaction", "summary": "s", "details": {"strategy": "verbatim-lines"}}


@pytest.mark.parametrize(
    ("messages", "chosen", "agent", "name"),
    [
        ([user("x")], "", "", "atomic-0.8"),
        ([compaction()], "", "", "atomic-0.8"),
        ([summary_compaction("s", "e1"), compaction()], "", "", "pi"),
        ([compaction(), summary_compaction("s", "e1")], "", "", "atomic-0.8"),
        ([summary_compaction("s", "e1")], "", "", "pi"),
        ([context_edit("e1", None)], "", "", "pi"),
        ([VERBATIM], "", "", "pi"),
        ([SYSTEM, user("x")], "", "", "pi"),
        ([user("x"), USAGE], "", "", "pi"),
        ([user("x"), THOUGHTFUL], "", "", "pi"),
        ([compaction(), SYSTEM, USAGE], "", "", "atomic-0.8"),
        ([USAGE, compaction()], "", "", "pi"),
        ([SYSTEM, THOUGHTFUL, USAGE], "", "atomic", "atomic-0.8"),
        ([compaction(), VERBATIM], "", "", "pi"),
        ([compaction(), VERBATIM], "", "atomic", "pi"),
        ([user("x")], "", "pi", "pi"),
        ([compaction()], "", "pi", "pi"),
        ([summary_compaction("s", "e1")], "", "atomic", "atomic-0.8"),
        ([context_edit("e1", None)], "", "atomic", "atomic-0.8"),
        ([user("x")], "", "another", "atomic-0.8"),
        ([VERBATIM], "atomic-0.8", "pi", "atomic-0.8"),
        ([compaction()], "pi", "atomic", "pi"),
    ],
)
def test_the_users_choice_comes_before_the_place_and_the_place_before_the_entries(
    messages: list[dict[str, Any]], chosen: str, agent: str, name: str
) -> None:
    reading = choose_reader(branch_of(chain(*messages)), chosen=chosen, agent=agent)
    assert reading.reader.name == name
    assert reading.reason


def test_every_reason_to_choose_a_reader_is_told_apart() -> None:
    def reason(*messages: dict[str, Any], **known: str) -> str:
        return choose_reader(branch_of(chain(*messages)), **known).reason

    told = [
        reason(user("x")),
        reason(user("x"), chosen="pi"),
        reason(user("x"), agent="pi"),
        reason(user("x"), agent="atomic"),
        reason(VERBATIM),
        reason(compaction()),
        reason(summary_compaction("s", "e1")),
        reason(context_edit("e1", None)),
        reason(SYSTEM),
        reason(USAGE),
        reason(THOUGHTFUL),
    ]
    assert len(set(told)) == len(told)


@pytest.mark.parametrize(
    ("messages", "known", "is_guess"),
    [
        ([user("x"), assistant(text("y"))], {}, True),
        ([], {}, True),
        ([user("x"), compaction()], {"own": {"e2"}}, True),
        ([user("x"), compaction()], {}, False),
        ([user("x"), compaction(), compaction()], {"own": {"e2"}}, False),
        ([user("x"), USAGE], {"own": {"e2"}}, False),
        ([user("x")], {"agent": "pi"}, False),
        ([user("x")], {"agent": "atomic"}, False),
        ([user("x")], {"agent": "another"}, True),
        ([user("x")], {"chosen": "atomic-0.8"}, False),
        ([SYSTEM], {}, False),
        ([VERBATIM], {}, False),
    ],
)
def test_a_reader_is_a_guess_when_nothing_shows_the_agent(
    messages: list[dict[str, Any]], known: dict[str, Any], is_guess: bool
) -> None:
    reading = choose_reader(session_log(chain(*messages)).entries, **known)
    assert reading.is_guess is is_guess
    assert ("guess" in reading.reason) is is_guess


def test_what_redline_appended_does_not_change_how_a_session_is_read_later() -> None:
    recorded = chain(user("x"), compaction(), USAGE, compaction())
    entries = session_log(recorded).entries
    assert choose_reader(entries).reader.name == "atomic-0.8"
    assert choose_reader(entries, own={"e2"}).reader.name == "pi"


@pytest.mark.parametrize(
    "details", [None, "verbatim-lines", ["strategy"], {"strategy": "other"}, {"strategy": []}]
)
def test_only_verbatim_lines_tell_the_newer_atomic(details: Any) -> None:
    branch = branch_of(chain({**VERBATIM, "details": details}))
    assert choose_reader(branch, agent="atomic").reader.name == "atomic-0.8"


def test_an_empty_branch_has_a_reader() -> None:
    assert choose_reader((), agent="").reader.name == "atomic-0.8"


def test_an_unknown_reader_is_bad_input_that_names_the_known_ones() -> None:
    with pytest.raises(BadInput) as caught:
        choose_reader((), chosen="atomic-2")
    assert caught.value.code == "unknown_reader"
    assert "atomic-2" in caught.value.message
    assert all(name in caught.value.message for name in READERS)


def test_only_atomic_would_honour_what_redline_writes() -> None:
    assert {name: EntryKind.DELETION in reader.honours for name, reader in READERS.items()} == {
        "atomic-0.8": True,
        "pi": False,
    }
