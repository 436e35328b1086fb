"""Summaries of pi and Atomic: the conversation that a model is shown, the lists of files, and the lines."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pure.formats import FileLists
from sessions_app.agents.registry import AGENTS
from sessions_app.sessionlog.entries import EntryKind, Role, SummaryControl
from tests.factories import assistant, bash, call, chain, custom, image, result, session_log, text, thinking, user

FORMAT = PI.format.summary_format
MOMENT = datetime(2026, 11, 23, 10, 0, 0, 123_456, tzinfo=UTC)
PATHS = st.lists(st.text(min_size=1, max_size=8), max_size=4, unique=True)


def summary(**fields: Any) -> dict[str, Any]:
    return {"type": "branch_summary", "id": "s", "parentId": None, "summary": "Done.", **fields}


def test_a_conversation_is_shown_in_named_sections():
    shown = FORMAT.conversation(
        [
            user("Mend it."),
            assistant(
                *(thinking("hm"), text("I read"), call("c1", path="a.py", limit=120.0)),
                *(thinking("so"), text("and run."), call("c2", "bash", command="make")),
            ),
            *(result("c1", "x = 1"), bash("ls", "a.py", exit_code=2), bash("true", ""), custom("a note")),
            {"role": "branchSummary", "summary": "Tried it."},
            {"role": "compactionSummary", "summary": "Began."},
        ]
    )
    assert shown.split("\n\n[") == [
        "[User]: Mend it.",
        "Assistant thinking]: hm\nso",
        "Assistant]: I read\nand run.",
        'Assistant tool calls]: read(path="a.py", limit=120); bash(command="make")',
        "Tool result]: x = 1",
        "User]: Ran `ls`\n```\na.py\n```\n\nCommand exited with code 2",
        "User]: Ran `true`\n(no output)",
        "User]: a note",
        "User]: Summary of another branch of this conversation:\n\nTried it.",
        "User]: Summary of the conversation before this point:\n\nBegan.",
    ]


def test_sections_without_text_are_left_out():
    empty = [
        *(user(""), assistant(text("")), assistant(thinking("")), assistant(), {"role": "assistant"}, {}),
        *({"role": "user", "content": [image()]}, {"role": "toolResult", "content": []}),
        *({"role": "branchSummary", "summary": ""}, {"role": "system", "content": "instructions"}),
    ]
    assert FORMAT.conversation(empty) == ""


def test_a_tool_result_is_cut_and_the_cut_is_counted():
    whole, cut = "x" * 2_000, "x" * 1_999 + "😀" + "y" * 7
    shown = FORMAT.conversation([result("c", whole), result("d", cut)])
    assert shown == (
        f"[Tool result]: {whole}\n\n[Tool result]: {'x' * 1_999}\ufffd\n\n[... 8 more characters truncated]"
    )


def test_files_are_those_of_calls_and_of_earlier_summaries_that_no_extension_wrote():
    messages = [
        assistant(call("1", path="b.py"), call("2", path="a.py"), call("3", "edit", path="b.py")),
        assistant(call("4", "write", path="new.py"), call("5", "bash", path="c.py"), call("6", path="")),
        assistant(call("7", path=["d.py"]), call("8"), {"type": "toolCall", "name": "read"}),
        {"role": "user", "content": [call("9", path="e.py")]},
    ]
    earlier = [
        summary(details={"readFiles": ["new.py", "old.py", 7], "modifiedFiles": ["a.py"]}),
        summary(details={"readFiles": ["hook.py"]}, fromHook=True),
        summary(details={"readFiles": ["extension.py"]}, fromExtension=True),
        summary(details="none"),
        summary(),
    ]
    assert FORMAT.files(messages, earlier) == FileLists(("old.py",), ("a.py", "b.py", "new.py"))


def test_files_are_sorted_as_javascript_sorts_them_and_shown_one_per_line():
    paths = ["\uffff.py", "😀.py", "a.py", "B.py"]
    found = FORMAT.files([assistant(*(call(path, path=path) for path in paths))])
    assert found.read == ("B.py", "a.py", "😀.py", "\uffff.py")
    read = "<read-files>\na.py\nb.py\n</read-files>"
    modified = "<modified-files>\nc.py\n</modified-files>"
    assert FORMAT.files_text(FileLists(("a.py", "b.py"), ("c.py",))) == f"{read}\n\n{modified}"
    assert FORMAT.files_text(FileLists(("a.py", "b.py"), ())) == read
    assert FORMAT.files_text(FileLists((), ("c.py",))) == modified
    assert FORMAT.files_text(FileLists()) == ""


def test_the_beginning_of_a_split_turn_follows_the_history():
    assert FORMAT.split_turn_text("History.", "Turn.") == ("History.\n\n---\n\n**Turn Context (split turn):**\n\nTurn.")
    assert FORMAT.split_turn_text("", "Turn.") == "**Turn Context (split turn):**\n\nTurn."


@given(st.text(), PATHS, PATHS, st.booleans(), st.sampled_from([None, "e1"]))
def test_the_line_of_a_branch_summary_is_read_as_what_was_written(words, read, modified, from_hook, parent_id):
    files = FileLists(tuple(read), tuple(modified))
    line = FORMAT.branch_summary_line(
        "s1", parent_id, MOMENT, from_id="e2", summary=words, files=files, from_hook=from_hook
    )
    entry = session_log([*chain(user("a"), user("b")), line]).entries[-1]
    assert (entry.id, entry.parent_id, entry.role) == ("s1", parent_id, Role.BRANCH_SUMMARY)
    assert (entry.empty, entry.timestamp) == (not words, "2026-11-23T10:00:00.123Z")
    assert PI.format.recorded_summary(line) == (words, files, from_hook, "e2")
    assert PI.format.recorded_summary(line).files == files
    assert ("fromHook" in json.loads(line)) is from_hook


@given(st.text(), PATHS, PATHS, st.booleans(), st.integers(0, 2**40))
def test_the_line_of_a_compaction_is_read_as_what_was_written(words, read, modified, from_hook, tokens):
    files = FileLists(tuple(read), tuple(modified))
    line = FORMAT.compaction_line(
        *("s1", "e2", MOMENT), summary=words, first_kept_id="e1", tokens_before=tokens, files=files, from_hook=from_hook
    )
    entry = session_log([*chain(user("a"), user("b")), line]).entries[-1]
    assert (entry.kind, entry.parent_id) == (EntryKind.SUMMARY, "e2")
    assert entry.control == SummaryControl("e1", is_verbatim=False)
    assert PI.format.recorded_summary(line) == (words, files, from_hook, None)
    assert json.loads(line)["tokensBefore"] == tokens


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b'{"type":"message"}', b'{"type":"compaction"}', b'{"type":"compaction","details":{}}']
)
def test_a_line_without_lists_has_no_files(line):
    recorded = PI.format.recorded_summary(line)
    assert recorded is None or recorded.files is None


def test_only_pi_honours_compactions_and_other_agents_have_no_form():
    forms = {agent.key: agent.format.summary_format for agent in AGENTS.values()}
    assert {key for key, form in forms.items() if form is not None} == {"pi", "atomic"}
    assert PI.format.summary_format.honours_compactions
    assert not ATOMIC.format.summary_format.honours_compactions
