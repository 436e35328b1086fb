"""The compactable transcript: its parameters, its entries with their texts and weights, and what protects them."""

from typing import Any

import pytest

from compaction_app.core.parameters import compression_ratio, preserve_recent, query
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import ToolCall, Workbench
from compaction_app.core.transcript import Transcript
from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.entries import Protection, Target
from sessions_app.sessionlog.jsjson import parse
from sessions_app.sessionlog.text import is_noise
from tests.factories import (
    assistant,
    bash,
    block,
    branch_and_texts,
    branch_of,
    branch_summary,
    call,
    chain,
    compaction,
    custom,
    image,
    prepare,
    result,
    session_bytes,
    summary_compaction,
    text,
    thinking,
    transcript_of,
    user,
    whole,
)

Recorded = dict[str, Any]
NOTE = {"type": "custom_message", "customType": "note", "content": "a note", "display": True}


def ids(transcript: Transcript) -> list[str]:
    return [entry.entry_id for entry in transcript.entries]


def prepared(*messages: Recorded, leaf: str | None = None, **settings: object) -> Transcript | None:
    branch, texts = branch_and_texts(session_bytes(chain(*messages)), leaf)
    return prepare(branch, texts, settings)


SYSTEM = {"role": "system", "content": "be kind", "sections": {"tone": "x" * 400}}


def test_the_transcript_has_exactly_what_can_be_in_a_models_context():
    transcript = transcript_of(
        user("go"),
        {"type": "model_change", "provider": "p", "modelId": "m"},
        assistant(text("ok")),
        bash("ls", "a"),
        bash("ls", "secret", excludeFromContext=True),
        {**custom("hidden"), "excludeFromContext": True},
        NOTE,
        {**NOTE, "excludeFromContext": True},
        branch_summary("we tried"),
        summary_compaction("old", "e3"),
        {"type": "label", "targetId": "e1", "label": "x"},
        {"type": "something_new", "content": "?"},
    )
    assert ids(transcript) == ["e1", "e3", "e4", "e7", "e9"]
    roles = [entry.role for entry in transcript.entries]
    assert roles == ["user", "assistant", "bashExecution", "custom", "branchSummary"]
    assert ("e5" in transcript, transcript.entry("e5")) == (False, None)


def test_empty_summaries_and_lists_count_and_an_empty_block_weighs_one_token_alone():
    transcript = transcript_of(branch_summary(""), assistant())
    assert (ids(transcript), transcript.objects, transcript.tokens) == (["e1", "e2"], 2, 0)
    entry = transcript_of(user("go"), assistant(text(""), text(""))).entries[1]
    assert ([found.tokens for found in entry.blocks], entry.tokens) == ([1, 1], 0)


@pytest.mark.parametrize(
    "messages",
    [
        [user("go")],
        [user("go"), bash("ls", "a", excludeFromContext=True)],
        [user("go"), assistant(text("ok")), compaction(whole("e2"))],
        [user("go"), assistant(text("ok")), compaction(block("e2", 0))],
    ],
)
def test_fewer_than_two_entries_cannot_be_compacted(messages):
    assert prepared(*messages) is None


def test_another_ratio_changes_nothing_else():
    transcript = transcript_of(user("go"), assistant(text("done")))
    other = transcript.with_ratio(0.25)
    assert (other.parameters.compression_ratio, transcript.parameters.compression_ratio) == (0.25, 0.5)
    assert (other.entries, other.tokens) == (transcript.entries, transcript.tokens)
    assert other.parameters.query == "go"


def test_only_the_branch_counts():
    messages = [user("go"), assistant(text("one")), assistant(text("two")), compaction(whole("e2"))]
    assert ids(prepared(*messages, leaf="e3")) == ["e1", "e2", "e3"]


def test_earlier_compactions_take_entries_and_blocks_out_and_indexes_stay_as_recorded():
    transcript = transcript_of(
        user("go"),
        assistant(text("aaaa"), text("bbbb"), text("cccccccc")),
        assistant(text("gone")),
        assistant(text("x"), text("y")),
        compaction(block("e2", 1), whole("e3")),
        compaction(block("e4", 0), block("e4", 1)),
        assistant(text("done")),
    )
    assert ids(transcript) == ["e1", "e2", "e7"]
    entry = transcript.entries[1]
    assert [found.index for found in entry.blocks] == [0, 2]
    assert (entry.tokens, entry.objects) == (3, 3)
    assert transcript.text(entry) == "aaaa\ncccccccc"
    assert [entry.slot(index) for index in range(4)] == [0, None, 1, None]
    assert transcript.text_of(Target("e2", 2)) == "cccccccc"


REDACTED = {"type": "redacted_thinking", "data": "x"}
LOOK = assistant(text("a look"), thinking("hm"), call("c1", "grep", path="src", n=1.0), REDACTED)
FOUND = result("c1") | {"content": [text("found"), image()]}


def test_the_texts_of_blocks_and_entries():
    transcript = transcript_of(LOOK, FOUND, bash("ls -l", "a\nb"), branch_summary("we tried"), NOTE)
    look = transcript.entries[0]
    json_texts = ['toolCall c1 grep {"path":"src","n":1}', '{"type":"redacted_thinking","data":"x"}']
    assert [transcript.block_text(look, found) for found in look.blocks] == ["a look", "hm", *json_texts]
    others = [transcript.text(entry) for entry in transcript.entries[1:]]
    assert others == ["found\n[image]", "Ran ls -l\na\nb", "we tried", "a note"]
    assert transcript.text(look).count("\n") == 3
    assert transcript.text_of(Target("e3")) == "Ran ls -l\na\nb"
    with pytest.raises(KeyError):
        transcript.text_of(Target("e9"))


def test_estimates_are_a_quarter_of_the_utf16_units_rounded_up():
    transcript = transcript_of(user("🙂" * 5), LOOK, FOUND, bash("ls -l", "a\nb"), branch_summary("x"))
    # 10 units; 6 + 2 + "grep" and 20 of its arguments; 5 + 4,800; 8; 1.
    assert [entry.tokens for entry in transcript.entries] == [3, 8, 1202, 2, 1]
    assert [found.tokens for found in transcript.entries[1].blocks] == [2, 1, 10, 10]
    assert [found.tokens for found in transcript.entries[2].blocks] == [2, 1200]
    assert transcript.tokens == 3 + 8 + 1202 + 2 + 1
    assert transcript.objects == 5 + 4 + 2


def test_which_calls_an_entry_makes_and_answers():
    transcript = transcript_of(assistant(call("c2"), text("so"), call("c1"), call("c2")), result("c1"), result("c9"))
    assert transcript.entries[0].call_ids == ("c2", "c1", "c2")
    assert [entry.result_for for entry in transcript.entries] == [None, "c1", "c9"]
    assert [found.id for found in transcript.pairs.calls] == ["c2", "c1"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (user("go"), Protection.USER),
        (custom("note"), Protection.CUSTOM),
        (NOTE, Protection.CUSTOM),
        ({"role": "hookMessage", "content": "old"}, Protection.CUSTOM),
        (branch_summary("we tried"), Protection.BRANCH_SUMMARY),
        (branch_summary(""), Protection.BRANCH_SUMMARY),
        (assistant(text("oh"), stopReason="error"), Protection.ASSISTANT_ERROR),
        (assistant(text("ok"), stopReason="aborted"), None),
        (assistant(text("ok")), None),
        *((result("c1", error=True), Protection.TOOL_ERROR), (result("c1"), None)),
        *((bash("make", "x", code), Protection.FAILED_COMMAND) for code in (2, -1)),
        (bash("make", "x", 0), None),
        ({"role": "bashExecution", "command": "make", "output": "x", "cancelled": True}, None),
    ],
)
def test_what_protects_an_entry_and_why(message, reason):
    entry = transcript_of(message, assistant(text("x"))).entries[0]
    assert (entry.protection, entry.reason, entry.recent) == (reason, reason, False)
    assert entry.is_protected is (reason is not None)


@pytest.mark.parametrize(("count", "recent"), [(0, []), (1, ["e6"]), (2, ["e4", "e6"]), (9, ["e1", "e2", "e4", "e6"])])
def test_the_last_compactable_entries_are_recent(count, recent):
    transcript = transcript_of(
        user("go"),
        assistant(text("a")),
        bash("ls", "x", excludeFromContext=True),
        user("more"),
        {"type": "label", "targetId": "e1", "label": "x"},
        assistant(text("b")),
        preserve_recent=count,
    )
    assert [entry.entry_id for entry in transcript.entries if entry.recent] == recent
    protected = {"e1", "e4", *recent}
    assert transcript.protected_entry_ids == tuple(one for one in ids(transcript) if one in protected)


def test_a_recent_user_message_is_recent_first_and_every_reason_has_a_label():
    entry = transcript_of(user("go"), user("on"), preserve_recent=1).entries[1]
    assert (entry.reason, entry.protection) == (Protection.RECENT, Protection.USER)
    assert len({reason.sentence for reason in Protection}) == len(Protection)


def test_the_latest_thinking_is_that_of_the_last_assistant_only():
    first = assistant(thinking("hm"), text("a"))
    last = assistant(text("b"), thinking("so"), REDACTED, call("c1"))
    transcript = transcript_of(user("go"), first, last, user("on"))
    assert [(found.position, found.slot) for found in transcript.latest_thinking] == [(2, -1), (2, 1), (2, 2)]
    assert transcript_of(user("go"), first, assistant(text("b"))).latest_thinking == ()


def test_a_system_message_is_in_the_context_and_cannot_be_deleted():
    """pi would declare it again."""
    messages = [SYSTEM, user("go"), assistant(text("a")), assistant(text("b"))]
    transcript, branch = prepared(*messages), branch_of(chain(*messages))
    assert ids(transcript) == ["e2", "e3", "e4"]
    for reader in READERS.values():
        context = reader.rebuild(branch)
        assert context.messages[0].entry.id == "e1"
        assert context.usage.tokens >= context.messages[0].tokens == 102
    store = DeletionStore(transcript)
    for target in (whole("e1"), block("e1", 0)):
        assert store.delete({"deletions": [target]}).code == "unknown_entry"
    bench = Workbench(store)
    assert bench.call(ToolCall("context_read_entry", {"entryId": "e1"})).details["error"] == "unknown_entry"
    found = bench.call(ToolCall("context_grep_delete", {"pattern": "be kind"})).details
    assert (found["matches"], found["skipped"]) == ([], [])


def test_a_system_message_counts_neither_as_recent_nor_as_one_of_the_two_required_entries():
    entries = prepared(user("go"), assistant(text("a")), SYSTEM, preserve_recent=1).entries
    assert [entry.entry_id for entry in entries if entry.recent] == ["e2"]
    assert prepared(SYSTEM, user("go")) is None


@pytest.mark.parametrize("noise", ["/exit", "[Request interrupted by user]", "<command-name>/exit</command-name>"])
def test_the_default_query_is_the_agents_unless_noise_is_to_be_passed_over(noise):
    branch, texts = branch_and_texts(session_bytes(chain(user("mend it"), assistant(text("a")), user(noise))))
    assert prepare(branch, texts, {}).parameters.query == noise
    assert prepare(branch, texts, {}, is_noise).parameters.query == "mend it"
    assert prepare(branch, texts, {"query": "/exit"}, is_noise).parameters.query == "/exit"


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize("value", [0.5, 0.01, 0.999])
def test_a_ratio_between_0_and_1_is_used(value):
    assert compression_ratio(value) == value


@pytest.mark.parametrize("value", [0, 1, -0.5, 1.5, 50, 10**400, NAN, INFINITE, True, None, "0.3", [0.3], {}])
def test_any_other_ratio_is_one_half(value):
    assert compression_ratio(value) == 0.5


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 0), (3, 3), (2.9, 2), (0.5, 0), (-0.5, 0), (-4, 0), (1e9, 10**9), (1e30, 2**53)]
)
def test_the_recent_window_is_rounded_down_and_at_least_0(value, expected):
    assert preserve_recent(value) == expected


@pytest.mark.parametrize("value", [NAN, INFINITE, -INFINITE, 10**400, -(10**400), True, False, None, "3", [3]])
def test_any_other_recent_window_is_two(value):
    assert preserve_recent(value) == 2


def test_a_query_that_is_not_blank_is_used_and_cut_at_a_thousand_utf16_units_with_a_note():
    assert query("  the parser \n", ["the user"]) == "the parser"
    assert query("a" * 1_000, []) == "a" * 1_000
    for cut, kept, removed in ((query("a" * 1_003, []), "a" * 1_000, 3), (query("🙂" * 600, []), "🙂" * 500, 200)):
        assert cut.startswith(f"{kept} ")
        assert f"{removed} more" in cut


@pytest.mark.parametrize("value", ["", " \n\t", None, 5, ["x"]])
def test_the_default_query_is_the_users_last_message(value):
    assert query(value, ["", "  ", " fix it ", "before"]) == "fix it"
    assert query(value, ["", " "]) == "auto-detected"
    assert query(value, []) == "auto-detected"


def test_the_query_is_the_last_user_message_that_is_in_the_context_and_no_noise():
    second = {"role": "user", "content": [text("second"), text("task")]}
    messages = [user("the first task"), second, user("a third"), user("   "), assistant(text("ok"))]
    assert transcript_of(*messages).parameters.query == "a third"
    assert transcript_of(*messages, compaction(whole("e3"))).parameters.query == "second\ntask"
    assert transcript_of(*messages, query="mine").parameters.query == "mine"
    assert transcript_of(assistant(text("a")), assistant(text("b"))).parameters.query == "auto-detected"
    branch, texts = branch_and_texts(session_bytes(chain(user("/exit"), assistant(text("a")))))
    assert prepare(branch, texts, {}, is_noise).parameters.query == "auto-detected"


def test_settings_as_they_are_written_in_a_file():
    written = parse(b'{"compression_ratio": 1e-400, "preserve_recent": 1e3, "query": null, "enabled": true}')
    parameters = transcript_of(user("go"), assistant(text("ok")), **written).parameters
    assert (parameters.compression_ratio, parameters.preserve_recent, parameters.query) == (0.5, 1_000, "go")
