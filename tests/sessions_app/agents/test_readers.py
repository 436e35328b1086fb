"""The readers: each agent's own reading of the same file."""

from typing import Any

import pytest

from sessions_app.agents.pi.agent import PI
from sessions_app.agents.registry import READERS, reader_named, readers_of
from sessions_app.sessionlog.context import ActiveContext
from tests.factories import (
    assistant,
    bash,
    block,
    branch_of,
    branch_summary,
    call,
    chain,
    compaction,
    context_edit,
    image,
    result,
    summary_compaction,
    text,
    thinking,
    user,
    verbatim_compaction,
    whole,
)

SYSTEM = {"role": "system", "content": "be kind"}
OTHERS = {
    "system": SYSTEM,
    "bash": bash("ls", "12345"),
    "branch-summary": branch_summary("earlier"),
    "compaction": summary_compaction("long " * 100, None),
}
"""Messages of other roles than those of a conversation."""


def rebuilt(reader: str, *messages: dict[str, Any]) -> ActiveContext:
    return reader_named(reader).rebuild(branch_of(chain(*messages)))


def ids(context: ActiveContext) -> list[str]:
    return [one.entry.id for one in context.messages]


# ---- both ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", readers_of(PI))
def test_a_plain_branch_is_the_same_for_every_reader(reader):
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


@pytest.mark.parametrize("reader", readers_of(PI))
def test_excluded_entries_are_rebuilt_but_not_sent(reader):
    context = rebuilt(reader, user("x"), bash("ls", "", excludeFromContext=True))
    assert [(one.entry.id, one.sent) for one in context.messages] == [("e1", True), ("e2", False)]


@pytest.mark.parametrize("reader", readers_of(PI))
def test_remaining_messages_are_verbatim(reader):
    branch = branch_of(chain(user("x"), assistant(thinking("t"), text("y"))))
    context = READERS[reader].rebuild(branch)
    assert [one.entry for one in context.messages] == branch
    assert [one.blocks for one in context.messages] == [entry.blocks for entry in branch]
    assert not any(one.edit for one in context.messages)


@pytest.mark.parametrize("reader", readers_of(PI))
def test_only_roles_that_the_agent_knows_are_sent(reader):
    unknown, summary = {"role": "future", "content": "x"}, {"role": "compactionSummary", "content": "x"}
    context = rebuilt(reader, SYSTEM, user("x"), unknown, summary)
    by_pi = reader.startswith("pi")
    assert [one.sent for one in context.messages] == [by_pi, True, False, by_pi]


# ---- Atomic -------------------------------------------------------------------------------------------------


def test_atomic_omits_only_the_targets_of_a_context_compaction():
    context = rebuilt(
        "atomic-0.8", user("x"), assistant(text("a"), text("b")), user("y"), compaction(whole("e1"), block("e2", 0))
    )
    assert ids(context) == ["e2", "e3"]
    assert context.messages[0].blocks is not None
    assert [block.index for block in context.messages[0].blocks] == [1]
    assert context.newest_compaction is not None
    assert context.newest_compaction.id == "e4"


def test_atomic_ignores_the_entries_of_other_agents():
    context = rebuilt(
        "atomic-0.8", user("x"), user("y"), summary_compaction("s", "e2"), context_edit("e1", None), user("z")
    )
    assert ids(context) == ["e1", "e2", "e5"]
    assert context.newest_compaction is None


NEWER = ["atomic-0.9", "atomic-0.9.9"]


@pytest.mark.parametrize("reader", NEWER)
def test_newer_atomic_starts_at_the_latest_lines_of_the_conversation(reader):
    context = rebuilt(
        reader,
        user("a"),
        verbatim_compaction("older", "e1"),
        user("b"),
        user("c"),
        verbatim_compaction("1234", "e4"),
        user("d"),
    )
    assert ids(context) == ["e5", "e4", "e6"]
    # The lines follow a sentence of 143 characters.
    assert (context.messages[0].role, context.messages[0].tokens) == ("compactionSummary", 1 + 36)
    assert context.newest_compaction is context.messages[0].entry
    assert [one.as_text for one in context.messages] == [False, reader == "atomic-0.9", False]


@pytest.mark.parametrize("reader", NEWER)
@pytest.mark.parametrize("first_kept", [None, "nowhere", "e3", "e4", 7])
def test_without_a_first_kept_entry_newer_atomic_keeps_no_tail(reader, first_kept):
    context = rebuilt(reader, user("a"), user("b"), verbatim_compaction("", first_kept), user("c"))
    assert ids(context) == ["e3", "e4"]


@pytest.mark.parametrize("reader", NEWER)
def test_newer_atomic_ignores_the_compactions_and_edits_of_other_agents(reader):
    others = (summary_compaction("s", "e2"), compaction(whole("e1")), context_edit("e1", None))
    context = rebuilt(reader, user("a"), *others, user("b"))
    assert ids(context) == ["e1", "e5"]
    assert context.newest_compaction is None
    branch = branch_of(chain(*others, verbatim_compaction("", None), user("a")))
    assert [READERS[reader].ignores(entry) for entry in branch] == [True, True, True, False, False]


def test_a_tail_as_text_loses_results_that_do_not_follow_their_call():
    recorded = (
        user("a"),
        assistant(text("calling"), call("c1"), call("c2")),
        result("c1"),
        assistant(text("again"), call("c3"), call("c4"), call("c5")),
        result("c2"),
        result("c4"),
        result("c3"),
        result("c3"),
        bash("ls", "", excludeFromContext=True),
        result("c5"),
        user("b"),
        result("c5"),
        verbatim_compaction("lines", "e3"),
    )
    assert ids(rebuilt("atomic-0.9", *recorded)) == ["e13", "e4", "e6", "e7", "e10", "e11"]
    assert len(rebuilt("atomic-0.9.9", *recorded).messages) == 11


def test_what_is_not_sent_does_not_become_text():
    unsent = ({"type": "custom_message", "content": "z", "excludeFromContext": True}, branch_summary(""))
    recorded = (*unsent, verbatim_compaction("lines", "e1"))
    assert ids(rebuilt("atomic-0.9", *recorded)) == ["e3"]
    assert [one.sent for one in rebuilt("atomic-0.9.9", *recorded).messages] == [True, False]


def test_the_usage_reported_in_a_tail_of_text_does_not_count():
    answer = assistant(text("a"), usage={"totalTokens": 50_000})
    recorded = (user("a"), answer, verbatim_compaction("", "e2"), user("b" * 40))
    assert rebuilt("atomic-0.9", *recorded).usage.reported_by is None
    assert rebuilt("atomic-0.9.9", *recorded).usage.tokens == 50_010


@pytest.mark.parametrize(
    ("reader", "honoured"),
    [
        ("atomic-0.8", ["context_compaction"]),
        ("atomic-0.9", ["verbatim-lines"]),
        ("atomic-0.9.9", ["verbatim-lines"]),
        ("pi", ["compaction", "verbatim-lines", "context_edit"]),
        ("pi-0.86", ["compaction", "verbatim-lines"]),
    ],
)
def test_each_reader_ignores_what_its_agent_does(reader, honoured):
    recorded = {
        "context_compaction": compaction(whole("e9")),
        "compaction": summary_compaction("s", None),
        "verbatim-lines": verbatim_compaction("s", None),
        "context_edit": context_edit("e9", None),
    }
    branch = branch_of(chain(*recorded.values(), user("a")))
    ignored = {name: READERS[reader].ignores(entry) for name, entry in zip(recorded, branch, strict=False)}
    assert ignored == {name: name not in honoured for name in recorded}
    assert not READERS[reader].ignores(branch[-1])


# ---- pi -----------------------------------------------------------------------------------------------------


def test_pi_ignores_a_context_compaction():
    context = rebuilt("pi", user("x"), compaction(whole("e1")), user("y"))
    assert ids(context) == ["e1", "e3"]
    assert context.newest_compaction is None


def test_pi_shows_the_summary_then_kept_entries_then_later_ones():
    context = rebuilt("pi", user("a"), user("b"), user("c"), summary_compaction("1234", "e2"), user("d"))
    assert ids(context) == ["e4", "e2", "e3", "e5"]
    assert (context.messages[0].role, context.messages[0].tokens) == ("compactionSummary", 1)
    assert context.newest_compaction is not None
    assert context.newest_compaction.id == "e4"


@pytest.mark.parametrize("first_kept", ["nowhere", "", None, 7, ["e1"], "e4"])
def test_without_a_first_kept_entry_pi_keeps_nothing_before_the_summary(first_kept):
    assert ids(rebuilt("pi", user("a"), user("b"), summary_compaction("s", first_kept), user("c"))) == ["e3", "e4"]


def test_an_older_compaction_contributes_nothing():
    older, newer = summary_compaction("old", "e1"), summary_compaction("new", "e2")
    expected = ["e5", "e2", "e4", "e6"]
    assert ids(rebuilt("pi", user("a"), user("b"), older, user("c"), newer, user("d"))) == expected
    # Kept from the older one on: it is omitted nevertheless.
    newer = summary_compaction("new", "e3")
    assert ids(rebuilt("pi", user("a"), user("b"), older, user("c"), newer)) == ["e5", "e4"]


def test_system_messages_are_dropped_only_from_kept_entries():
    expected = ["e4", "e2", "e5"]
    assert ids(rebuilt("pi", SYSTEM, user("a"), SYSTEM, summary_compaction("s", "e1"), SYSTEM)) == expected
    assert ids(rebuilt("pi", SYSTEM, user("a"))) == ["e1", "e2"]


def test_a_compaction_on_another_branch_does_not_count():
    recorded = chain(user("a"), summary_compaction("s", "nowhere"), user("b"))
    recorded[-1]["parentId"] = "e1"
    assert ids(READERS["pi"].rebuild(branch_of(recorded))) == ["e1", "e3"]


def test_an_edit_to_nothing_omits_its_target():
    context = rebuilt("pi", user("a"), user("b"), context_edit("e1", None))
    assert ids(context) == ["e2"]
    assert context.newest_compaction is not None
    assert context.newest_compaction.id == "e3"


@pytest.mark.parametrize("said", [*OTHERS.values(), {"type": "custom_message", "content": "z"}])
def test_an_edit_to_nothing_omits_messages_of_every_role(said):
    assert ids(rebuilt("pi", said, context_edit("e1", None), user("a"))) == ["e3"]


@pytest.mark.parametrize("nothing", ["text", 7, [], {}, {"content": None}, {"content": 7}, False])
def test_an_edit_without_new_content_leaves_a_message_without_content(nothing):
    (message, _) = rebuilt("pi", assistant(text("a")), user("b"), context_edit("e1", nothing)).messages
    assert message.edit is not None
    assert (message.entry.id, message.blocks, message.tokens) == ("e1", None, 0)


def test_an_edit_without_a_replacement_makes_pi_refuse_the_branch():
    edit = {"type": "context_edit", "targetId": "e1"}
    context = rebuilt("pi", user("a"), user("b"), edit)
    assert context.refused is not None
    assert context.refused.entry.id == "e3"
    assert "cannot open" in context.refused.reason
    assert "e1" in context.refused.reason
    assert [(one.entry.id, one.edit) for one in context.messages] == [("e1", None), ("e2", None)]
    assert rebuilt("pi", user("a"), edit, context_edit("e1", None)).refused is None
    assert rebuilt("pi-0.86", user("a"), edit).refused is None


@pytest.mark.parametrize("said", [*OTHERS.values(), {"type": "label", "targetId": "e2", "label": "here"}])
def test_pi_does_not_miss_a_replacement_that_it_would_not_use(said):
    context = rebuilt("pi", said, {"type": "context_edit", "targetId": "e1"})
    assert context.refused is None


def test_an_edit_replaces_the_recorded_content():
    recorded = (user("long " * 100), assistant(thinking("t"), text("a")), result("c1", "b" * 400))
    for target, role, blocks in (("e1", "user", None), ("e2", "assistant", ["text"]), ("e3", "toolResult", ["text"])):
        context = rebuilt("pi", *recorded, context_edit(target, {"content": "12345"}))
        (changed,) = [one for one in context.messages if one.edit]
        assert (changed.entry.id, changed.role, changed.tokens) == (target, role, 2)
        assert (changed.blocks and [block.type for block in changed.blocks]) == blocks
        assert ids(context) == ["e1", "e2", "e3"]


def test_an_edit_to_a_list_counts_its_blocks():
    image = {"type": "image", "data": "x"}
    context = rebuilt("pi", result("c1", "b" * 400), context_edit("e1", {"content": [text("12345"), image]}))
    assert context.messages[0].blocks is not None
    assert [block.type for block in context.messages[0].blocks] == ["text", "image"]
    assert context.messages[0].tokens == 1202


def test_the_latest_edit_of_a_target_wins():
    edits = (
        context_edit("e1", None),
        context_edit("e1", {"content": "12345678"}),
        context_edit("e1", {"content": "1"}),
    )
    assert rebuilt("pi", user("a"), *edits).messages[0].tokens == 1
    assert ids(rebuilt("pi", user("a"), *edits[::-1])) == []


def test_only_edits_among_the_selected_entries_count():
    assert ids(rebuilt("pi", user("a"), context_edit("e1", None), user("b"), summary_compaction("s", "e1"))) == [
        "e4",
        "e3",
    ]
    expected = ["e3", "e2"]
    assert ids(rebuilt("pi", context_edit("e2", None), user("a"), summary_compaction("s", "e2"))) == expected


@pytest.mark.parametrize("target", [None, 7, ["e1"], {}, "nowhere"])
def test_an_edit_without_an_existing_target_changes_nothing(target):
    assert ids(rebuilt("pi", user("a"), context_edit(target, None))) == ["e1"]


@pytest.mark.parametrize("said", OTHERS.values(), ids=OTHERS)
def test_pi_ignores_replacements_of_other_messages(said):
    (message,) = rebuilt("pi", said, context_edit("e1", {"content": "1"})).messages
    assert (message.edit, message.tokens) == (None, message.entry.tokens)


@pytest.mark.parametrize("said", [assistant(text("a")), user("a"), result("c1")], ids=["assistant", "user", "result"])
def test_new_blocks_weigh_what_recorded_ones_of_the_role_do(said):
    new = [text("12"), image(), thinking("12345"), call("c1"), {"type": "redacted_thinking", "data": "x"}, 7]
    (message,) = rebuilt("pi", said, context_edit("e1", {"content": new})).messages
    recorded = branch_of(chain({**said, "content": new}))[0]
    assert (message.blocks, message.tokens) == (recorded.blocks, recorded.tokens)


def test_a_compaction_repeats_the_system_message_before_its_summary():
    system = {"role": "system", "content": "", "sections": {"preamble": "12345678"}}
    context = rebuilt("pi", user("a"), summary_compaction("1234", None) | {"systemMessage": system}, user("b"))
    expected = [("e2", "system", 2), ("e2", "compactionSummary", 1), ("e3", "user", 1)]
    assert [(one.entry.id, one.role, one.tokens) for one in context.messages] == expected


def test_pi_holds_back_only_commands():
    excluded = {"excludeFromContext": True}
    context = rebuilt(
        "pi",
        bash("ls", "", **excluded),
        {"type": "custom_message", "content": "z"} | excluded,
        {"role": "custom", "content": "z"} | excluded,
        {"type": "branch_summary", "summary": "earlier"} | excluded,
    )
    assert [one.sent for one in context.messages] == [False, True, True, True]


def test_older_pi_ignores_edits():
    recorded = (user("a"), summary_compaction("s", "e1"), user("b"), context_edit("e3", None))
    context = rebuilt("pi-0.86", *recorded)
    assert ids(context) == ["e2", "e1", "e3"]
    assert context.newest_compaction is not None
    assert context.newest_compaction.id == "e2"
