"""The rules that providers enforce: what an agent sends is accepted, or the violation is found, named and certified."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from sessions_app.agents.atomic.pure.format import SENDING_0_9
from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.certificate import Certificate, PackageOutcome, PackageResult, certified
from sessions_app.sessionlog.context import NO_REPAIRS, ActiveContext, Sending
from sessions_app.sessionlog.diagnosis import (
    KEPT_CALLS,
    SENTENCE_CHARACTERS,
    Breakage,
    ProviderRule,
    SentConversation,
    Violation,
    new_violations,
    violations,
)
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
FAILED, ABORTED = (assistant(text("I lo"), call("a"), stopReason=reason) for reason in ("error", "aborted"))
ASKED = (user("x"), assistant(call("a")))
Recorded = dict[str, Any]


def context_of(*messages: Recorded, reader: str = "pi") -> ActiveContext:
    return READERS[reader].rebuild(branch_of(chain(*messages)))


def seen(context: ActiveContext, sending: Sending | None, *, is_repaired: bool) -> list[str]:
    """Rule, entry and call of each violation, in words."""
    if sending is not None:
        context = replace(context, sending=sending)
    return [
        f"{one.rule} {one.entry_id} {one.call_id}".strip()
        for one in violations(context)
        if one.is_repaired is is_repaired
    ]


def found(*messages: Recorded, reader: str = "pi", sending: Sending | None = None) -> list[str]:
    """The violations that a provider sees."""
    return seen(context_of(*messages, reader=reader), sending, is_repaired=False)


def repaired(*messages: Recorded, sending: Sending | None = None) -> list[str]:
    """Those that the agent repairs."""
    return seen(context_of(*messages), sending, is_repaired=True)


@pytest.mark.parametrize("sending", [NO_REPAIRS, PI.rebuild(()).sending, SENDING_0_9], ids=["none", "pi", "atomic"])
def test_a_plain_conversation_is_accepted(sending):
    messages = (
        user("Mend it."),
        assistant(thinking("hm"), text("I look."), call("a"), call("b")),
        *(result("b"), result("a", error=True), assistant(text("Done."))),
        *(user("More."), user("And more."), assistant(call("c")), result("c")),
        *(assistant(text("Yes.")), assistant(thinking("hm"))),
        *(bash("ls", ""), custom("note"), branch_summary("there")),
    )
    assert violations(replace(context_of(*messages), sending=sending)) == ()


def test_an_unusual_conversation_is_accepted():
    accepted = {
        "a summary first": (user("x"), assistant(text("y")), summary_compaction("so far", "e2")),
        "a system message before a result": (*ASKED, {"role": "system", "content": "New rules."}, result("a")),
        "what is not sent before a result": (*ASKED, bash("ls", "", excludeFromContext=True), result("a")),
        "a failed message with a call": (user("x"), FAILED, user("y")),
        "an aborted one": (user("x"), ABORTED, user("y")),
        "an image": ({"role": "user", "content": [image()]},),
        "a text without words beside it": ({"role": "user", "content": [text(""), image()]},),
        "one without words beside words": ({"role": "user", "content": [text("x"), text("")]},),
    }
    refused = {what: violations(context_of(*messages)) for what, messages in accepted.items()}
    assert {what: found for what, found in refused.items() if found} == {}
    assert violations(PI.rebuild(())) == (), "nothing at all"


@pytest.mark.parametrize(
    "then",
    [(), (user("y"),), (assistant(text("y")),), (bash("ls", ""), user("y")), (custom("y"),)],
    ids=["end", "user", "assistant", "command", "custom"],
)
def test_a_call_needs_a_result_directly_after_it(then):
    messages = (user("x"), assistant(call("a"), call("b")), result("a"), *then)
    assert "unanswered_call e2 b" in found(*messages, sending=NO_REPAIRS)
    assert found(*messages) == []
    assert repaired(*messages) == ["unanswered_call e2 b"]


def test_only_the_remaining_calls_of_a_message_need_results():
    deleted = compaction(block("e2", 0), whole("e3"))
    messages = (user("x"), assistant(call("a"), call("b")), result("a"), result("b"), user("y"), deleted)
    assert found(*messages, reader="atomic-0.8", sending=NO_REPAIRS) == []


SAID, CUT = assistant(thinking("hm"), text("so")), context_edit("e2", {"content": [text("so")]})
REPLY = assistant(text("x"))
UNSENT = {
    "nothing": (),
    "an empty user": (user(""),),
    "an empty assistant": (assistant(),),
    "a failed message": (assistant(text("x"), stopReason="error"),),
    "an excluded command": (bash("ls", "", excludeFromContext=True),),
}
REFUSED = {
    "a result without any call": ((user("x"), result("a"), user("y")), "stray_result e2 a"),
    "one without the id of a call": ((user("x"), {"role": "toolResult", "content": [text("y")]}), "stray_result e2"),
    "one before its call": ((user("x"), result("a"), assistant(call("a"))), "stray_result e2 a"),
    "a second result": ((*ASKED, result("a"), result("a")), "repeated_result e4 a"),
    "an id that is used again": ((*ASKED, result("a"), assistant(call("a")), result("a")), "repeated_call_id e4 a"),
    "an id that is used twice": ((user("x"), assistant(call("a"), call("a")), result("a")), "repeated_call_id e2 a"),
    "a result of a failed message": ((user("x"), FAILED, result("a"), user("y")), "stray_result e3 a"),
    "a failed message between a call and its result": (
        (*ASKED, assistant(text("I lo"), stopReason="aborted"), result("a")),
        "stray_result e4 a",
    ),
    "an edited message that is the latest which is sent": (
        (user("x"), SAID, assistant(text("ab"), stopReason="aborted"), assistant(), CUT),
        "changed_thinking e2",
    ),
    "a failed call without content in its result": ((*ASKED, result("a", "", error=True)), "empty_content e3 a"),
    "a user who is edited out": ((user("x"), SAID, context_edit("e1", None)), "assistant_first e2"),
    **{
        f"an assistant after {name}": ((*unsent, REPLY, REPLY), f"assistant_first e{len(unsent) + 1}")
        for name, unsent in UNSENT.items()
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_conversation_is_refused(name):
    messages, violation = REFUSED[name]
    assert found(*messages) == [violation]


@pytest.mark.parametrize("between", [user("y"), assistant(text("y")), bash("ls", "")], ids=["user", "said", "bash"])
def test_a_result_that_comes_later_is_refused_although_the_agent_answers_the_call(between):
    messages = (*ASKED, between, result("a"))
    assert found(*messages) == ["stray_result e4 a"]
    assert repaired(*messages) == ["unanswered_call e2 a"]


def test_an_agent_that_drops_stray_results_repairs_them_all():
    messages = (user("x"), result("z"), assistant(call("a")), result("a"), result("a"), user("y"), result("a"))
    strays = ["stray_result e2 z", "repeated_result e5 a", "stray_result e7 a"]
    assert found(*messages) == strays
    assert found(*messages, sending=SENDING_0_9) == []
    assert repaired(*messages, sending=SENDING_0_9) == strays
    first = (result("a"), assistant(text("y")))
    assert found(*first) == ["stray_result e1 a", "assistant_first e2"]
    assert found(*first, sending=SENDING_0_9) == ["assistant_first e2"]


def test_a_failed_assistant_message_counts_where_the_agent_sends_it():
    for failed in (FAILED, ABORTED):
        assert found(user("x"), failed, user("y"), sending=NO_REPAIRS) == ["unanswered_call e2 a"]
    answered = (user("x"), FAILED, result("a"))
    assert found(*answered, sending=NO_REPAIRS) == []
    assert found(*answered, sending=SENDING_0_9) == ["stray_result e3 a"]


def test_what_is_sent_as_a_part_of_another_message_takes_no_part():
    context = context_of(user("x"), result("a"), assistant(call("b")), result("b"))
    as_text = [msgspec.structs.replace(message, as_text=True) for message in context.messages[1:]]
    assert violations(context) != ()
    assert violations(replace(context, messages=(context.messages[0], *as_text))) == ()


def test_a_call_that_the_agent_leaves_out_because_its_id_was_used_is_repaired():
    sending = Sending(drops_repeated_calls=True, drops_stray_results=True)
    again = (user("x"), assistant(call("a"), call("a")), result("a"), assistant(text("y")))
    assert (found(*again, sending=sending), repaired(*again, sending=sending)) == ([], ["repeated_call_id e2 a"])
    later = (*ASKED, result("a"), assistant(text("y"), call("a")), result("a"))
    assert found(*later, sending=sending) == [], "nothing waits for the second result"
    assert repaired(*later, sending=sending) == ["repeated_call_id e4 a", "stray_result e5 a"]
    assert found(*ASKED, assistant(call("a")), result("a"), sending=sending) == ["unanswered_call e2 a"]


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
    ids=[*("text gone", "text edited", "one gone", "first gone", "order", "edited", "not at the start"), "all gone"],
)
def test_an_edit_keeps_the_thinking_of_the_latest_message(content, is_changed):
    changed = found(user("x"), LATEST, result("a"), context_edit("e2", {"content": content}))
    assert changed == (["changed_thinking e2"] if is_changed else [])


def test_only_thinking_at_the_start_of_the_latest_message_that_is_sent_has_to_stay():
    latest = assistant(text("so"), thinking("first"), call("a"))
    edited = context_edit("e2", {"content": [thinking("first"), call("a")]})
    assert found(user("x"), latest, result("a"), edited) == []
    assert found(user("x"), SAID, assistant(thinking("ha")), CUT) == []


@pytest.mark.parametrize(
    "empty",
    [user(""), custom(""), {"role": "user", "content": []}, {"role": "user", "content": [text("")]}, assistant()],
    ids=["user", "custom", "no blocks", "empty block", "assistant"],
)
def test_a_message_without_content_is_refused_unless_the_agent_drops_it(empty):
    messages = (user("x"), empty, user("y"))
    assert found(*messages) == []
    assert repaired(*messages) == ["empty_content e2"]
    assert found(*messages, sending=NO_REPAIRS) == ["empty_content e2"]


def test_of_results_only_those_of_failed_calls_need_content():
    assert found(user("x"), bash("", ""), assistant(thinking("")), sending=NO_REPAIRS) == []
    assert found(*ASKED, result("a", "")) == []
    assert found(user("x"), result("a", "", error=True), sending=SENDING_0_9) == [], "it is dropped"


def test_a_violation_names_the_entry_and_the_error_of_the_provider():
    assert all(Violation(rule, "e1", "", "Something").error for rule in ProviderRule)
    (one,) = violations(context_of(user("x"), result("a")))
    assert one.sentence == (
        "Entry e2 is a result of call a, which no entry before it has. Providers refuse the conversation: a tool "
        "result has no tool call in the message before it."
    )
    (one,) = violations(context_of(*ASKED))
    assert one.sentence == (
        "Entry e2 has a call a, and no result of it follows directly. The agent repairs this before it sends the "
        "conversation."
    )


def test_the_fault_of_a_stray_result_names_its_call():
    failed = assistant(call("a"), stopReason="error")
    for messages, words in (
        ((user("x"), failed, result("a")), "but entry e2 with this call failed and is not sent"),
        ((*ASKED, user("y"), result("a")), "but does not follow entry e2 with this call directly"),
        ((*ASKED, result("a"), result("a")), "which has one already"),
    ):
        (one,) = [one for one in violations(context_of(*messages)) if not one.is_repaired]
        assert one.fault.endswith(f"is a result of call a, {words}")


def test_a_violation_is_new_if_rule_entry_or_call_differ_or_it_is_not_repaired_any_more():
    known = Violation(ProviderRule.UNANSWERED_CALL, "e1", "a", "Words", is_repaired=True)
    assert new_violations([known], [known, known._replace(fault="Other words")]) == ()
    rule = ProviderRule.REPEATED_CALL_ID
    for change in ({"rule": rule}, {"entry_id": "e2"}, {"call_id": "b"}, {"is_repaired": False}):
        changed = known._replace(**change)
        assert new_violations([known], [known, changed]) == (changed,)


def test_another_assistant_may_come_first_where_one_did_before():
    branch = branch_of(chain(assistant(text("a")), assistant(text("b")), user("on")))
    before, after = (violations(PI.rebuild(one)) for one in (branch, branch[1:]))
    assert [(one.rule, one.entry_id) for one in (*before, *after)] == [
        (ProviderRule.ASSISTANT_FIRST, "e1"),
        (ProviderRule.ASSISTANT_FIRST, "e2"),
    ]
    assert (new_violations(before, after), new_violations((), after)) == ((), after)


def broken_at(*messages: Recorded) -> str | None:
    """The entry because of which a session cannot be continued."""
    broken = SentConversation.of(context_of(*messages)).broken
    return None if broken is None else broken.entry_id


def test_the_first_violation_that_is_not_repaired_or_an_entry_that_is_refused_breaks_a_session():
    assert broken_at(*ASKED) is None
    assert broken_at(*ASKED, user("y"), result("b"), result("c")) == "e4"
    edited = context_edit("e3", {"content": [text("so")]})
    assert broken_at(user("x"), result("a"), SAID, edited) == "e2", "it comes before those at the end"
    edit = {"type": "context_edit", "targetId": "e1"}
    broken = SentConversation.of(context_of(user("x"), result("a"), edit)).broken
    assert broken.entry_id == "e3"
    assert "cannot open" in broken.sentence


def test_changed_thinking_breaks_a_session_until_the_next_assistant_message():
    messages = (user("x"), SAID, CUT, user("y"))
    assert broken_at(*messages) == "e2"
    assert broken_at(*messages, assistant(text("z"), stopReason="error")) == "e2"
    assert broken_at(*messages, assistant(text("z"))) is None


@pytest.mark.parametrize("sending", [PI.rebuild(()).sending, NO_REPAIRS], ids=["pi", "none"])
def test_a_stored_conversation_continues_as_if_it_had_been_read_at_once(sending):
    messages = (
        *(user("x"), assistant(call("a"), call("b")), result("a"), result("b")),
        *(assistant(call("c"), stopReason="error"), assistant(call("d")), user("y")),
        *(assistant(call("d")), result("c")),
    )
    context = replace(context_of(*messages), sending=sending)
    for end in range(len(messages) + 1):
        stored = SentConversation.of(replace(context, messages=context.messages[:end]))
        stored.forget_old_calls()
        again = msgspec.convert(msgspec.to_builtins(stored), SentConversation)
        again.add(context.messages[end:])
        assert again.broken == SentConversation.of(context).broken is not None


def test_a_stored_conversation_stays_small():
    many = [one for number in range(KEPT_CALLS + 1) for one in (assistant(call(f"c{number}")), result(f"c{number}"))]
    stored = SentConversation.of(context_of(user("x"), *many, user("y")))
    stored.forget_old_calls()
    assert list(stored.calls) == [f"c{number}" for number in range(1, KEPT_CALLS + 1)]
    broken = SentConversation.of(context_of(user("x"), result("a" * 10_000))).broken
    assert isinstance(broken, Breakage)
    assert len(broken.sentence) == SENTENCE_CHARACTERS, "even if ids are long"


def of_reply(*messages: Recorded, reply: str = "R") -> list[Any]:
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


def test_the_entries_of_a_reply_are_one_message():
    calls = [assistant(call("c1")), assistant(call("c2"))]
    messages = (user("go"), *calls, result("c1"), result("c2"))
    assert rules_of(of_reply(*messages)) == []
    assert rules_of(of_reply(*messages, reply="")) == ["unanswered_call", "stray_result"]
    between = (user("go"), calls[0], result("c1"), calls[1], result("c2"))
    assert rules_of(of_reply(*between)) == []


def test_another_reply_parts_a_reply_from_its_results_but_what_the_client_adds_does_not():
    added = {"role": "custom", "content": "added"}
    messages = (user("go"), assistant(call("c1")), added, result("c1"))
    assert rules_of(of_reply(*messages)) == []
    assert rules_of(of_reply(*messages, reply="")) == ["unanswered_call", "stray_result"]
    first = of_reply(user("go"), assistant(call("c1")))
    second = of_reply(user("go"), assistant(text("on")), reply="S")[1:]
    assert rules_of([*first, *second]) == ["unanswered_call"]


def test_changed_thinking_in_any_entry_of_the_latest_reply_is_a_violation():
    parts = of_reply(user("go"), assistant(thinking("t"), text("a")), assistant(text("b")))
    changed = [parts[0], msgspec.structs.replace(parts[1], blocks=parts[1].entry.blocks[1:]), parts[2]]
    assert rules_of(changed) == ["changed_thinking"]
    later = of_reply(user("go"), assistant(text("c")), reply="S")[1:]
    assert rules_of([*changed, *later]) == []


BROKEN = certified([Violation(ProviderRule.EMPTY_CONTENT, "e1", "", "Entry e1 is empty")])
REPAIRED = certified([Violation(ProviderRule.EMPTY_CONTENT, "e1", "", "Entry e1 is empty", is_repaired=True)])


def certificate(**facts: Any) -> Certificate:
    return Certificate("pi", datetime(2026, 11, 22, 12, tzinfo=UTC), "e9", 1_234, **facts)


EQUAL, NOT_RUN, DIFFERENT, DENIED = (
    PackageResult("pi-coding-agent", "0.87.1", outcome)
    for outcome in (PackageOutcome.EQUAL, PackageOutcome.FAILED, PackageOutcome.DIFFERENT, PackageOutcome.REFUSED)
)


@pytest.mark.parametrize(
    ("facts", "holds"),
    [
        ({}, True),
        ({"violations": REPAIRED}, True),
        ({"violations": BROKEN}, False),
        ({"violations": (*REPAIRED, *BROKEN)}, False),
        ({"refusal": "no header"}, False),
        ({"difference": ""}, True),
        ({"difference": "message 3"}, False),
        *(({by: outcome}, True) for by in ("package", "client") for outcome in (EQUAL, NOT_RUN)),
        *(({by: outcome}, False) for by in ("package", "client") for outcome in (DIFFERENT, DENIED)),
    ],
)
def test_a_certificate_holds_unless_something_speaks_against_it(facts, holds):
    assert certificate(**facts).holds is holds


def test_it_says_what_was_checked_and_is_stored_as_json_and_read_back():
    assert certificate().sentence == "1,234 messages as in pi"
    assert certificate(versions="pi 0.87 and newer").sentence == "1,234 messages as in pi 0.87 and newer"
    assert certificate(difference="").sentence.endswith("pi, compared with the approved plan")
    both = certificate(difference="", package=EQUAL)
    assert both.sentence.endswith("compared with the approved plan and pi-coding-agent 0.87.1")
    assert certificate(package=NOT_RUN).sentence.endswith("as in pi")
    full = certificate(violations=BROKEN, difference="", refusal="no", package=DENIED)
    stored = msgspec.to_builtins(full)
    assert msgspec.convert(stored, Certificate) == full
    assert stored["violations"][0]["entryId"] == "e1"
    assert stored["checkedAt"] == "2026-11-22T12:00:00Z"
