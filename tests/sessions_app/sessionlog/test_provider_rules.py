"""The rules that providers enforce: what an agent sends is accepted, or the violation is found and named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from sessions_app.agents.atomic.sending import SENDING_0_9
from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.provider_rules import (
    KEPT_CALLS,
    SENTENCE_CHARACTERS,
    Breakage,
    ProviderRule,
    SentConversation,
    Violation,
    new_violations,
    violations,
)
from sessions_app.sessionlog.sending import NO_REPAIRS, Sending
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
    custom,
    image,
    result,
    summary_compaction,
    text,
    thinking,
    user,
    whole,
)

PI = READERS["pi"]


def context_of(*messages: dict[str, Any], reader: str = "pi") -> ActiveContext:
    return READERS[reader].rebuild(branch_of(chain(*messages)))


def found(
    *messages: dict[str, Any], reader: str = "pi", sending: Sending | None = None
) -> list[tuple[str, str, str]]:
    """Rule, entry and call of each violation that a provider sees."""
    context = context_of(*messages, reader=reader)
    if sending is not None:
        context = replace(context, sending=sending)
    return [(one.rule.value, one.entry_id, one.call_id) for one in violations(context) if not one.is_repaired]


def repaired(*messages: dict[str, Any], sending: Sending | None = None) -> list[tuple[str, str, str]]:
    """The same of each violation that the agent repairs."""
    context = context_of(*messages)
    if sending is not None:
        context = replace(context, sending=sending)
    return [(one.rule.value, one.entry_id, one.call_id) for one in violations(context) if one.is_repaired]


def unanswered(*messages: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [one for one in found(*messages, sending=NO_REPAIRS) if one[0] == "unanswered_call"]


# ---- what providers accept ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sending", [NO_REPAIRS, PI.rebuild(()).sending, SENDING_0_9], ids=["none", "pi", "atomic"]
)
def test_a_plain_conversation_is_accepted(sending: Sending) -> None:
    messages = (
        user("Mend it."),
        assistant(thinking("hm"), text("I look."), call("a"), call("b")),
        result("b"),
        result("a", error=True),
        assistant(text("Done.")),
        user("More."),
        user("And more."),
        assistant(call("c")),
        result("c"),
        assistant(text("Yes.")),
        assistant(thinking("hm")),
        bash("ls", ""),
        custom("note"),
        branch_summary("there"),
    )
    assert violations(replace(context_of(*messages), sending=sending)) == ()


def test_an_empty_conversation_is_accepted() -> None:
    assert violations(PI.rebuild(())) == ()


def test_a_conversation_may_begin_with_the_summary_of_a_compaction() -> None:
    assert found(user("x"), assistant(text("y")), summary_compaction("so far", "e2")) == []


def test_a_system_message_may_be_between_a_call_and_its_result() -> None:
    system = {"role": "system", "content": "New rules."}
    assert violations(context_of(user("x"), assistant(call("a")), system, result("a"))) == ()


# ---- calls and results --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "then",
    [(), (user("y"),), (assistant(text("y")),), (bash("ls", ""), user("y")), (custom("y"),)],
    ids=["end", "user", "assistant", "command", "custom"],
)
def test_a_call_needs_a_result_directly_after_it(then: tuple[dict[str, Any], ...]) -> None:
    messages = (user("x"), assistant(call("a"), call("b")), result("a"), *then)
    assert unanswered(*messages) == [("unanswered_call", "e2", "b")]
    assert found(*messages) == []
    assert repaired(*messages) == [("unanswered_call", "e2", "b")]


def test_only_the_remaining_calls_of_a_message_need_results() -> None:
    deleted = compaction(block("e2", 0), whole("e3"))
    messages = (user("x"), assistant(call("a"), call("b")), result("a"), result("b"), user("y"), deleted)
    assert found(*messages, reader="atomic-0.8", sending=NO_REPAIRS) == []


def test_a_result_without_any_call_is_refused() -> None:
    assert found(user("x"), result("a"), user("y")) == [("stray_result", "e2", "a")]
    assert found(user("x"), {"role": "toolResult", "content": [text("y")]}) == [("stray_result", "e2", "")]


def test_a_result_before_its_call_is_refused() -> None:
    assert found(user("x"), result("a"), assistant(call("a"))) == [("stray_result", "e2", "a")]


@pytest.mark.parametrize(
    "between", [user("y"), assistant(text("y")), bash("ls", "")], ids=["user", "said", "bash"]
)
def test_a_result_that_comes_later_is_refused_although_the_agent_answers_the_call(
    between: dict[str, Any],
) -> None:
    messages = (user("x"), assistant(call("a")), between, result("a"))
    assert found(*messages) == [("stray_result", "e4", "a")]
    assert repaired(*messages) == [("unanswered_call", "e2", "a")]


def test_a_second_result_of_a_call_is_refused() -> None:
    assert found(user("x"), assistant(call("a")), result("a"), result("a")) == [
        ("repeated_result", "e4", "a")
    ]


def test_an_agent_that_drops_stray_results_repairs_all_three() -> None:
    messages = (
        user("x"),
        result("z"),
        assistant(call("a")),
        result("a"),
        result("a"),
        user("y"),
        result("a"),
    )
    rules = ["stray_result", "repeated_result", "stray_result"]
    assert [rule for rule, _, _ in found(*messages)] == rules
    assert found(*messages, sending=SENDING_0_9) == []
    assert [rule for rule, _, _ in repaired(*messages, sending=SENDING_0_9)] == rules


def test_the_id_of_a_call_is_used_once() -> None:
    messages = (user("x"), assistant(call("a")), result("a"), assistant(call("a")), result("a"))
    assert found(*messages) == [("repeated_call_id", "e4", "a")]
    assert found(user("x"), assistant(call("a"), call("a")), result("a")) == [("repeated_call_id", "e2", "a")]


@pytest.mark.parametrize("reason", ["error", "aborted"])
def test_a_failed_assistant_message_is_not_sent_and_its_calls_need_no_result(reason: str) -> None:
    failed = assistant(text("I lo"), call("a"), stopReason=reason)
    assert violations(context_of(user("x"), failed, user("y"))) == ()
    assert found(user("x"), failed, user("y"), sending=NO_REPAIRS) == [("unanswered_call", "e2", "a")]


def test_the_result_of_a_failed_assistant_message_is_sent_without_its_call() -> None:
    failed = assistant(call("a"), stopReason="error")
    for sending in (PI.rebuild(()).sending, SENDING_0_9):
        assert found(user("x"), failed, result("a"), user("y"), sending=sending) == [
            ("stray_result", "e3", "a")
        ]
    assert found(user("x"), failed, result("a"), sending=NO_REPAIRS) == []


def test_a_failed_assistant_message_ends_the_results_of_the_one_before() -> None:
    failed = assistant(text("I lo"), stopReason="aborted")
    assert found(user("x"), assistant(call("a")), failed, result("a")) == [("stray_result", "e4", "a")]


def test_what_the_agent_does_not_send_takes_no_part() -> None:
    unsent = bash("ls", "", excludeFromContext=True)
    assert violations(context_of(user("x"), assistant(call("a")), unsent, result("a"))) == ()


def test_what_is_sent_as_a_part_of_another_message_takes_no_part() -> None:
    context = context_of(user("x"), result("a"), assistant(call("b")), result("b"))
    as_text = [msgspec.structs.replace(message, as_text=True) for message in context.messages[1:]]
    assert violations(context) != ()
    assert violations(replace(context, messages=(context.messages[0], *as_text))) == ()


# ---- thinking -----------------------------------------------------------------------------------------------

LATEST = assistant(thinking("first"), text("so"), thinking("second"), call("a"))


@pytest.mark.parametrize(
    ("content", "is_changed"),
    [
        ([thinking("first"), thinking("second"), call("a")], False),
        ([thinking("first"), text("rewritten"), thinking("second"), call("a")], False),
        ([thinking("first"), call("a")], True),
        ([thinking("second"), call("a")], True),
        ([thinking("second"), thinking("first"), call("a")], True),
        ([thinking("first"), thinking("another"), call("a")], True),
        ([text("so"), thinking("first"), thinking("second"), call("a")], True),
        ([call("a")], True),
    ],
    ids=[
        "text gone",
        "text edited",
        "one gone",
        "first gone",
        "order",
        "edited",
        "not at the start",
        "all gone",
    ],
)
def test_an_edit_keeps_the_thinking_of_the_latest_assistant_message(
    content: list[dict[str, Any]], is_changed: bool
) -> None:
    changed = found(user("x"), LATEST, result("a"), context_edit("e2", {"content": content}))
    assert changed == ([("changed_thinking", "e2", "")] if is_changed else [])


def test_thinking_that_was_not_at_the_start_may_come_there() -> None:
    latest = assistant(text("so"), thinking("first"), call("a"))
    edited = context_edit("e2", {"content": [thinking("first"), call("a")]})
    assert found(user("x"), latest, result("a"), edited) == []


def test_thinking_of_earlier_assistant_messages_may_go() -> None:
    edited = context_edit("e2", {"content": [text("so")]})
    assert found(user("x"), assistant(thinking("hm"), text("so")), assistant(thinking("ha")), edited) == []


def test_the_latest_assistant_message_is_the_latest_that_is_sent() -> None:
    said, failed = assistant(thinking("hm"), text("so")), assistant(text("ab"), stopReason="aborted")
    edited = context_edit("e2", {"content": [text("so")]})
    assert found(user("x"), said, failed, assistant(), edited) == [("changed_thinking", "e2", "")]


# ---- content and order --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "empty",
    [
        user(""),
        custom(""),
        {"role": "user", "content": []},
        {"role": "user", "content": [text("")]},
        assistant(),
    ],
    ids=["user", "custom", "no blocks", "empty block", "assistant"],
)
def test_a_message_without_content_is_refused_unless_the_agent_drops_it(empty: dict[str, Any]) -> None:
    messages = (user("x"), empty, user("y"))
    assert found(*messages) == []
    assert repaired(*messages) == [("empty_content", "e2", "")]
    assert found(*messages, sending=NO_REPAIRS) == [("empty_content", "e2", "")]


@pytest.mark.parametrize(
    "content", [[image()], [text(""), image()], [text("x"), text("")]], ids=["image", "both", "text"]
)
def test_one_block_with_content_is_enough(content: list[dict[str, Any]]) -> None:
    assert violations(context_of({"role": "user", "content": content})) == ()


def test_commands_and_thinking_are_never_empty() -> None:
    assert found(user("x"), bash("", ""), assistant(thinking("")), sending=NO_REPAIRS) == []


def test_only_the_result_of_a_failed_call_needs_content() -> None:
    for error, expected in ((False, []), (True, [("empty_content", "e3", "a")])):
        assert found(user("x"), assistant(call("a")), result("a", "", error=error)) == expected


def test_a_dropped_result_needs_no_content() -> None:
    assert found(user("x"), result("a", "", error=True), sending=SENDING_0_9) == []


def test_the_first_message_is_not_an_assistants() -> None:
    assert found(assistant(text("x")), assistant(text("y"))) == [("assistant_first", "e1", "")]
    assert found(user("x"), assistant(text("y")), context_edit("e1", None)) == [("assistant_first", "e2", "")]


@pytest.mark.parametrize(
    "unsent",
    [
        user(""),
        assistant(),
        assistant(text("x"), stopReason="error"),
        bash("ls", "", excludeFromContext=True),
    ],
    ids=["empty user", "empty assistant", "failed", "excluded"],
)
def test_a_message_that_is_not_sent_is_not_the_first(unsent: dict[str, Any]) -> None:
    assert found(unsent, assistant(text("y"))) == [("assistant_first", "e2", "")]


def test_a_stray_result_is_not_the_first_message() -> None:
    messages = (result("a"), assistant(text("y")))
    assert found(*messages) == [("stray_result", "e1", "a"), ("assistant_first", "e2", "")]
    assert found(*messages, sending=SENDING_0_9) == [("assistant_first", "e2", "")]


# ---- sentences and comparison -------------------------------------------------------------------------------


def test_a_violation_names_the_entry_and_the_error_of_the_provider() -> None:
    (one,) = violations(context_of(user("x"), result("a")))
    assert one.sentence == (
        "Entry e2 is a result of call a, which no entry before it has. Providers refuse the conversation: a tool "
        "result has no tool call in the message before it."
    )
    (one,) = violations(context_of(user("x"), assistant(call("a"))))
    assert one.sentence == (
        "Entry e2 has a call a, and no result of it follows directly. The agent repairs this before it sends the "
        "conversation."
    )


def test_the_fault_of_a_stray_result_names_its_call() -> None:
    failed = assistant(call("a"), stopReason="error")
    for messages, words in (
        ((user("x"), failed, result("a")), "but entry e2 with this call failed and is not sent"),
        (
            (user("x"), assistant(call("a")), user("y"), result("a")),
            "but does not follow entry e2 with this call directly",
        ),
        ((user("x"), assistant(call("a")), result("a"), result("a")), "which has one already"),
    ):
        (one,) = [one for one in violations(context_of(*messages)) if not one.is_repaired]
        assert one.fault.endswith(f"is a result of call a, {words}")


def test_every_rule_has_an_error() -> None:
    assert all(Violation(rule, "e1", "", "Something").error for rule in ProviderRule)


def test_a_violation_is_new_if_rule_entry_or_call_differ_or_it_is_not_repaired_any_more() -> None:
    known = Violation(ProviderRule.UNANSWERED_CALL, "e1", "a", "Words", is_repaired=True)
    assert new_violations([known], [known, known._replace(fault="Other words")]) == ()
    for change in (
        {"rule": ProviderRule.REPEATED_CALL_ID},
        {"entry_id": "e2"},
        {"call_id": "b"},
        {"is_repaired": False},
    ):
        changed = known._replace(**change)
        assert new_violations([known], [known, changed]) == (changed,)


def test_another_assistant_may_come_first_where_one_did_before() -> None:
    before, after = (
        violations(context_of(*messages))
        for messages in (
            (assistant(text("a")), assistant(text("b")), user("x")),
            (assistant(text("b")), user("x")),
        )
    )
    known = [one for one in before if one.rule is ProviderRule.ASSISTANT_FIRST]
    assert len(known) == 1
    moved = [one._replace(entry_id="e2") for one in after]
    assert new_violations(before, moved) == ()
    assert new_violations((), moved) == tuple(moved)


# ---- what is stored -----------------------------------------------------------------------------------------


def broken_at(*messages: dict[str, Any]) -> str | None:
    """The entry because of which a session cannot be continued."""
    broken = SentConversation.of(context_of(*messages)).broken
    return None if broken is None else broken.entry_id


def test_the_first_violation_that_is_not_repaired_breaks_a_session() -> None:
    assert broken_at(user("x"), assistant(call("a"))) is None
    assert broken_at(user("x"), assistant(call("a")), user("y"), result("b"), result("c")) == "e4"


def test_the_first_violation_comes_before_those_at_the_end() -> None:
    edited = context_edit("e3", {"content": [text("so")]})
    assert broken_at(user("x"), result("a"), assistant(thinking("hm"), text("so")), edited) == "e2"


def test_an_entry_that_the_agent_refuses_breaks_a_session_first() -> None:
    edit = {"type": "context_edit", "targetId": "e1"}
    broken = SentConversation.of(context_of(user("x"), result("a"), edit)).broken
    assert broken is not None
    assert broken.entry_id == "e3"
    assert "cannot open" in broken.sentence


def test_changed_thinking_breaks_a_session_until_the_next_assistant_message() -> None:
    edited = context_edit("e2", {"content": [text("so")]})
    messages = (user("x"), assistant(thinking("hm"), text("so")), edited, user("y"))
    assert broken_at(*messages) == "e2"
    assert broken_at(*messages, assistant(text("z"), stopReason="error")) == "e2"
    assert broken_at(*messages, assistant(text("z"))) is None


@pytest.mark.parametrize("sending", [PI.rebuild(()).sending, NO_REPAIRS], ids=["pi", "none"])
def test_a_stored_conversation_continues_as_if_it_had_been_read_at_once(sending: Sending) -> None:
    messages = (
        user("x"),
        assistant(call("a"), call("b")),
        result("a"),
        result("b"),
        assistant(call("c"), stopReason="error"),
        assistant(call("d")),
        user("y"),
        assistant(call("d")),
        result("c"),
    )
    context = replace(context_of(*messages), sending=sending)
    for end in range(len(messages) + 1):
        stored = SentConversation.of(replace(context, messages=context.messages[:end]))
        stored.forget_old_calls()
        again = msgspec.convert(msgspec.to_builtins(stored), SentConversation)
        again.add(context.messages[end:])
        assert again.broken == SentConversation.of(context).broken is not None


def test_a_stored_conversation_stays_small() -> None:
    many = [
        one
        for number in range(KEPT_CALLS + 1)
        for one in (assistant(call(f"c{number}")), result(f"c{number}"))
    ]
    stored = SentConversation.of(context_of(user("x"), *many, user("y")))
    stored.forget_old_calls()
    assert list(stored.calls) == [f"c{number}" for number in range(1, KEPT_CALLS + 1)]


def test_the_sentence_of_a_breakage_is_short_even_if_ids_are_long() -> None:
    broken = SentConversation.of(context_of(user("x"), result("a" * 10_000))).broken
    assert isinstance(broken, Breakage)
    assert len(broken.sentence) == SENTENCE_CHARACTERS


def test_a_beginning_without_a_user_is_the_same_violation_whoever_has_it() -> None:
    branch = branch_of(chain(assistant(text("a")), assistant(text("b")), user("on")))
    before, after = (violations(PI.rebuild(one)) for one in (branch, branch[1:]))
    assert [one.entry_id for one in (*before, *after)] == ["e1", "e2"]
    assert new_violations(before, after) == ()


# ---- replies that are recorded as several entries -------------------------------------------------------------


def of_reply(*messages: dict[str, Any], reply: str = "R") -> list[Any]:
    """Messages of the context, with the assistant's as parts of one reply."""
    return [
        msgspec.structs.replace(one, entry=msgspec.structs.replace(one.entry, reply=reply))
        if one.role == "assistant"
        else one
        for one in context_of(*messages).messages
    ]


def rules_of(messages: list[Any]) -> list[str]:
    conversation = SentConversation(NO_REPAIRS)
    return [one.rule for one in (*conversation.read(messages), *conversation.violations_at_end())]


def test_the_entries_of_a_reply_are_one_message() -> None:
    calls = [assistant(call("c1")), assistant(call("c2"))]
    messages = (user("go"), *calls, result("c1"), result("c2"))
    assert rules_of(of_reply(*messages)) == []
    assert rules_of(of_reply(*messages, reply="")) == ["unanswered_call", "stray_result"]
    between = (user("go"), calls[0], result("c1"), calls[1], result("c2"))
    assert rules_of(of_reply(*between)) == []


def test_what_the_client_adds_does_not_part_a_reply_from_its_results() -> None:
    added = {"role": "custom", "content": "added"}
    messages = (user("go"), assistant(call("c1")), added, result("c1"))
    assert rules_of(of_reply(*messages)) == []
    assert rules_of(of_reply(*messages, reply="")) == ["unanswered_call", "stray_result"]


def test_another_reply_ends_the_one_before() -> None:
    first = of_reply(user("go"), assistant(call("c1")))
    second = of_reply(user("go"), assistant(text("on")), reply="S")[1:]
    assert rules_of([*first, *second]) == ["unanswered_call"]


def test_changed_thinking_in_any_entry_of_the_latest_reply_is_a_violation() -> None:
    parts = of_reply(user("go"), assistant(thinking("t"), text("a")), assistant(text("b")))
    changed = [parts[0], msgspec.structs.replace(parts[1], blocks=parts[1].entry.blocks[1:]), parts[2]]
    assert rules_of(changed) == ["changed_thinking"]
    later = of_reply(user("go"), assistant(text("c")), reply="S")[1:]
    assert rules_of([*changed, *later]) == []
