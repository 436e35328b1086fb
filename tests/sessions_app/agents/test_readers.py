"""The readers: each agent's own reading of the same file, and which of them reads a session."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.pi.agent import PI
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import (
    AGENTS,
    READERS,
    agent_of,
    choose_reader,
    may_show_another,
    reader_named,
    readers_of,
)
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import EntryKind
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.session import ParserState
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
    session_log,
    summary_compaction,
    text,
    thinking,
    user,
    verbatim_compaction,
    whole,
)
from tests.installation import refusal

SYSTEM = {"role": "system", "content": "be kind"}
OTHERS = {
    "system": SYSTEM,
    "bash": bash("ls", "12345"),
    "branch-summary": branch_summary("earlier"),
    "compaction": summary_compaction("long " * 100, None),
}
"""Messages of other roles than those of a conversation."""
A, B, C, D = map(user, "abcd")
EXCLUDED = {"excludeFromContext": True}
NOTE = {"type": "custom_message", "content": "z"}
NEWER = ["atomic-0.9", "atomic-0.9.9"]


def rebuilt(reader: str, *messages: dict[str, Any]) -> ActiveContext:
    return reader_named(reader).rebuild(branch_of(chain(*messages)))


def ids(context: ActiveContext) -> list[str]:
    return [one.entry.id for one in context.messages]


def kept(first: object, words: str = "s") -> dict[str, Any]:
    """A summary of pi that keeps the entries from this one on."""
    return summary_compaction(words, first)


def omit(target: object) -> dict[str, Any]:
    return context_edit(target, None)


OTHER_AGENTS = (kept("e2"), compaction(whole("e1")), omit("e1"))
REBUILT = {
    # The reader, what it reads, what it rebuilds of that, and the compaction that it names.
    "Atomic and the entries of other agents": ("atomic-0.8", (A, B, kept("e2"), omit("e1"), C), "e1 e2 e5", ""),
    "pi and a context compaction": ("pi", (A, compaction(whole("e1")), B), "e1 e3", ""),
    "a summary, what it keeps, and what is later": ("pi", (A, B, C, kept("e2"), D), "e4 e2 e3 e5", "e4"),
    "an older summary that is kept": ("pi", (A, B, kept("e1"), C, kept("e2"), D), "e5 e2 e4 e6", "e5"),
    "an older summary from which is kept": ("pi", (A, B, kept("e1"), C, kept("e3")), "e5 e4", "e5"),
    "system messages among what is kept": ("pi", (SYSTEM, A, SYSTEM, kept("e1"), SYSTEM), "e4 e2 e5", "e4"),
    "a system message without a summary": ("pi", (SYSTEM, A), "e1 e2", ""),
    "an edit to nothing": ("pi", (A, B, omit("e1")), "e2", "e3"),
    "an edit before a summary": ("pi", (A, omit("e1"), B, kept("e1")), "e4 e3", "e4"),
    "an edit before what is kept": ("pi", (omit("e2"), A, kept("e2")), "e3 e2", "e3"),
    "older pi and an edit": ("pi-0.86", (A, kept("e1"), B, omit("e3")), "e2 e1 e3", "e2"),
    **{
        f"a summary that keeps from {first!r} on": ("pi", (A, B, kept(first), C), "e3 e4", "e3")
        for first in ("nowhere", "", None, 7, ["e1"], "e4")
    },
    **{f"{reader} and the entries of other agents": (reader, (A, *OTHER_AGENTS, B), "e1 e5", "") for reader in NEWER},
    **{
        f"{reader}: lines that keep {first!r}": (reader, (A, B, verbatim_compaction("", first), C), "e3 e4", "e3")
        for reader in NEWER
        for first in (None, "nowhere", "e3", "e4", 7)
    },
    **{
        f"an edit of the target {target!r}": ("pi", (A, omit(target)), "e1", "e2")
        for target in (None, 7, ["e1"], {}, "nowhere")
    },
    **{
        f"an edit of {name} to nothing": ("pi", (said, omit("e1"), A), "e3", "e2")
        for name, said in {**OTHERS, "note": NOTE}.items()
    },
}


@pytest.mark.parametrize("name", REBUILT)
def test_what_a_reader_rebuilds(name):
    reader, messages, expected, compaction_id = REBUILT[name]
    context = rebuilt(reader, *messages)
    assert ids(context) == expected.split()
    assert (context.newest_compaction.id if context.newest_compaction else "") == compaction_id


@pytest.mark.parametrize("reader", readers_of(PI))
def test_a_plain_branch_and_messages_that_remain_are_read_alike_by_every_reader(reader):
    context = rebuilt(
        reader,
        {"type": "model_change", "provider": "p", "modelId": "m"},
        *(A, assistant(text("y"), call("c1")), result("c1"), bash("ls", ""), NOTE),
        *(branch_summary("earlier"), branch_summary(""), {"type": "label", "targetId": "e2", "label": "here"}),
        *({"type": "custom", "data": {}}, {"type": "from_the_future"}),
    )
    assert ids(context) == ["e2", "e3", "e4", "e5", "e6", "e7"]
    roles = "user assistant toolResult bashExecution custom branchSummary"
    assert [one.role for one in context.messages] == roles.split()
    assert context.newest_compaction is None
    assert context.reader == reader
    context = rebuilt(reader, A, bash("ls", "", **EXCLUDED))
    assert [(one.entry.id, one.sent) for one in context.messages] == [("e1", True), ("e2", False)]
    unknown, summary = {"role": "future", "content": "x"}, {"role": "compactionSummary", "content": "x"}
    by_pi = reader.startswith("pi")
    assert [one.sent for one in rebuilt(reader, SYSTEM, A, unknown, summary).messages] == [by_pi, True, False, by_pi]
    branch = branch_of(chain(A, assistant(thinking("t"), text("y"))))
    verbatim = [(entry, entry.blocks, None) for entry in branch]
    assert [(one.entry, one.blocks, one.edit) for one in READERS[reader].rebuild(branch).messages] == verbatim


def test_atomic_omits_only_the_targets_of_a_context_compaction():
    context = rebuilt("atomic-0.8", A, assistant(text("a"), text("b")), B, compaction(whole("e1"), block("e2", 0)))
    assert ids(context) == ["e2", "e3"]
    assert [block.index for block in context.messages[0].blocks or ()] == [1]
    assert context.newest_compaction.id == "e4"


@pytest.mark.parametrize("reader", NEWER)
def test_newer_atomic_starts_at_the_latest_lines_and_ignores_compactions_and_edits_of_others(reader):
    context = rebuilt(reader, A, verbatim_compaction("older", "e1"), B, C, verbatim_compaction("1234", "e4"), D)
    assert ids(context) == ["e5", "e4", "e6"]
    # The lines follow a sentence of 143 characters.
    assert (context.messages[0].role, context.messages[0].tokens) == ("compactionSummary", 1 + 36)
    assert context.newest_compaction is context.messages[0].entry
    assert [one.as_text for one in context.messages] == [False, reader == "atomic-0.9", False]
    branch = branch_of(chain(*OTHER_AGENTS, verbatim_compaction("", None), A))
    assert [READERS[reader].ignores(entry) for entry in branch] == [True, True, True, False, False]


def test_a_tail_as_text_loses_results_that_do_not_follow_their_call():
    recorded = (
        *(A, assistant(text("calling"), call("c1"), call("c2")), result("c1")),
        *(assistant(text("again"), call("c3"), call("c4"), call("c5")), result("c2"), result("c4"), result("c3")),
        *(result("c3"), bash("ls", "", **EXCLUDED), result("c5"), B, result("c5"), verbatim_compaction("lines", "e3")),
    )
    assert ids(rebuilt("atomic-0.9", *recorded)) == ["e13", "e4", "e6", "e7", "e10", "e11"]
    assert len(rebuilt("atomic-0.9.9", *recorded).messages) == 11


def test_what_is_not_sent_does_not_become_text_and_usage_reported_in_a_tail_of_text_does_not_count():
    recorded = (NOTE | EXCLUDED, branch_summary(""), verbatim_compaction("lines", "e1"))
    assert ids(rebuilt("atomic-0.9", *recorded)) == ["e3"]
    assert [one.sent for one in rebuilt("atomic-0.9.9", *recorded).messages] == [True, False]
    answer = assistant(text("a"), usage={"totalTokens": 50_000})
    recorded = (A, answer, verbatim_compaction("", "e2"), user("b" * 40))
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
        "compaction": kept(None),
        "verbatim-lines": verbatim_compaction("s", None),
        "context_edit": omit("e9"),
    }
    branch = branch_of(chain(*recorded.values(), A))
    ignored = {name: READERS[reader].ignores(entry) for name, entry in zip(recorded, branch, strict=False)}
    assert ignored == {name: name not in honoured for name in recorded}
    assert not READERS[reader].ignores(branch[-1])


def test_a_compaction_on_another_branch_does_not_count():
    recorded = chain(A, kept("nowhere"), B)
    recorded[-1]["parentId"] = "e1"
    assert ids(READERS["pi"].rebuild(branch_of(recorded))) == ["e1", "e3"]


@pytest.mark.parametrize("nothing", ["text", 7, [], {}, {"content": None}, {"content": 7}, False])
def test_an_edit_without_new_content_leaves_a_message_without_content(nothing):
    (message, _) = rebuilt("pi", assistant(text("a")), B, context_edit("e1", nothing)).messages
    assert message.edit is not None
    assert (message.entry.id, message.blocks, message.tokens) == ("e1", None, 0)


def test_an_edit_without_a_replacement_makes_pi_refuse_the_branch():
    edit = {"type": "context_edit", "targetId": "e1"}
    context = rebuilt("pi", A, B, edit)
    assert context.refused.entry.id == "e3"
    assert "cannot open" in context.refused.reason
    assert "e1" in context.refused.reason
    assert [(one.entry.id, one.edit) for one in context.messages] == [("e1", None), ("e2", None)]
    assert rebuilt("pi", A, edit, omit("e1")).refused is None
    assert rebuilt("pi-0.86", A, edit).refused is None


@pytest.mark.parametrize("said", [*OTHERS.values(), {"type": "label", "targetId": "e2", "label": "here"}])
def test_pi_does_not_miss_a_replacement_that_it_would_not_use(said):
    assert rebuilt("pi", said, {"type": "context_edit", "targetId": "e1"}).refused is None


def test_an_edit_replaces_the_recorded_content_and_the_latest_of_a_target_wins():
    recorded = (user("long " * 100), assistant(thinking("t"), text("a")), result("c1", "b" * 400))
    for target, role, blocks in (("e1", "user", None), ("e2", "assistant", ["text"]), ("e3", "toolResult", ["text"])):
        context = rebuilt("pi", *recorded, context_edit(target, {"content": "12345"}))
        (changed,) = [one for one in context.messages if one.edit]
        assert (changed.entry.id, changed.role, changed.tokens) == (target, role, 2)
        assert (changed.blocks and [block.type for block in changed.blocks]) == blocks
        assert ids(context) == ["e1", "e2", "e3"]
    edits = (omit("e1"), context_edit("e1", {"content": "12345678"}), context_edit("e1", {"content": "1"}))
    assert rebuilt("pi", A, *edits).messages[0].tokens == 1
    assert ids(rebuilt("pi", A, *edits[::-1])) == []


@pytest.mark.parametrize("said", OTHERS.values(), ids=OTHERS)
def test_pi_ignores_replacements_of_other_messages(said):
    (message,) = rebuilt("pi", said, context_edit("e1", {"content": "1"})).messages
    assert (message.edit, message.tokens) == (None, message.entry.tokens)


@pytest.mark.parametrize("said", [assistant(text("a")), A, result("c1")], ids=["assistant", "user", "result"])
def test_new_blocks_weigh_what_recorded_ones_of_the_role_do(said):
    new = [text("12"), image(), thinking("12345"), call("c1"), {"type": "redacted_thinking", "data": "x"}, 7]
    (message,) = rebuilt("pi", said, context_edit("e1", {"content": new})).messages
    recorded = branch_of(chain({**said, "content": new}))[0]
    assert (message.blocks, message.tokens) == (recorded.blocks, recorded.tokens)


def test_a_compaction_repeats_the_system_message_before_its_summary():
    system = {"role": "system", "content": "", "sections": {"preamble": "12345678"}}
    context = rebuilt("pi", A, kept(None, "1234") | {"systemMessage": system}, B)
    expected = [("e2", "system", 2), ("e2", "compactionSummary", 1), ("e3", "user", 1)]
    assert [(one.entry.id, one.role, one.tokens) for one in context.messages] == expected


def test_pi_holds_back_only_commands():
    said = (bash("ls", ""), NOTE, {"role": "custom", "content": "z"}, branch_summary("earlier"))
    context = rebuilt("pi", *(one | EXCLUDED for one in said))
    assert [one.sent for one in context.messages] == [False, True, True, True]


@pytest.mark.parametrize(
    ("path", "agent"),
    [
        ("/home/dev/.atomic/agent/sessions/--home-dev--/a.jsonl", "atomic"),
        ("/home/dev/.pi/agent/sessions/--home-dev--/a.jsonl", "pi"),
        ("/home/dev/pi/atomic/a.jsonl", ""),
        ("/home/dev/.pipe/a.atomic/a.jsonl", ""),
        ("a.jsonl", ""),
    ],
)
def test_a_path_belongs_to_the_agent_whose_directory_contains_it(path, agent):
    assert agent_of(Path(path)) == agent


@pytest.mark.parametrize("agent", AGENTS.values(), ids=list(AGENTS))
def test_the_default_session_directory_of_an_agent_is_in_its_directory(agent):
    assert {agent_of(Path(root)) for root in agent.store.roots({})} == {agent.key}


USAGE = {"type": "usage", "kind": "summary", "provider": "p", "model": "m", "usage": {"input": 1}}
THOUGHTFUL = {**assistant(text("so")), "thinkingLevel": "high"}
"""Entries that only pi writes, since 0.86."""
VERBATIM = {"type": "compaction", "summary": "s", "details": {"strategy": "verbatim-lines"}}
REPEATING = summary_compaction("s", "e1") | {"systemMessage": {"content": "be kind"}}


def installed(**versions: tuple[int, ...]) -> Callable[[str], tuple[int, ...] | None]:
    return versions.get


def chosen_for(*messages: dict[str, Any], **known: Any) -> Reading:
    """The reading of a session with these messages; no agent is installed unless `version_of` says so."""
    return choose_reader(session_log(chain(*messages)).entries, **{"version_of": installed(), **known})


@pytest.mark.parametrize(
    ("messages", "known", "name"),
    [
        # The user's choice precedes everything.
        ([VERBATIM], {"chosen": "atomic-0.8", "agent": "pi"}, "atomic-0.8"),
        ([compaction()], {"chosen": "pi", "agent": "atomic"}, "pi"),
        # A place tells the agent; only this agent's own entries tell its version.
        ([user("x"), VERBATIM], {"agent": "atomic"}, "atomic-0.9"),
        ([compaction()], {"agent": "atomic"}, "atomic-0.8"),
        ([compaction(), VERBATIM], {"agent": "atomic"}, "atomic-0.9"),
        ([VERBATIM, compaction()], {"agent": "atomic"}, "atomic-0.8"),
        ([SYSTEM, THOUGHTFUL, USAGE, compaction()], {"agent": "atomic"}, "atomic-0.8"),
        ([context_edit("e1", None), compaction()], {"agent": "atomic"}, "atomic-0.8"),
        *(([one], {"agent": "pi"}, "pi") for one in (SYSTEM, THOUGHTFUL, USAGE, omit("e1"), REPEATING)),
        ([VERBATIM, SYSTEM], {"agent": "pi"}, "pi"),
        # Without a place, the first entry that only one agent writes tells it; lines of the conversation come first.
        ([compaction()], {}, "atomic-0.8"),
        ([compaction(), summary_compaction("s", "e1"), SYSTEM], {}, "atomic-0.8"),
        ([summary_compaction("s", "e1")], {}, "pi"),
        ([summary_compaction("s", "e1"), compaction()], {}, "pi"),
        ([USAGE, compaction()], {}, "pi"),
        ([REPEATING], {}, "pi"),
        ([context_edit("e1", None)], {"agent": "another"}, "pi"),
        ([VERBATIM], {}, "atomic-0.9"),
        ([SYSTEM, compaction(), VERBATIM], {}, "atomic-0.9"),
        # All versions of Atomic honour the fork, the best writer of the newest: the version does not matter.
        ([user("x")], {"agent": "atomic"}, "atomic-0.9"),
        ([user("x"), compaction()], {"agent": "atomic", "own": {"e2": "e1"}}, "atomic-0.8"),
    ],
)
def test_the_choice_precedes_the_location_which_precedes_the_entries(messages, known, name):
    reading = chosen_for(*messages, **known)
    assert reading.reader.name == name
    assert reading.reason
    assert not reading.is_guess


@pytest.mark.parametrize(
    ("messages", "known", "asked"),
    [
        ([user("x")], {"chosen": "pi"}, []),
        ([user("x")], {}, []),
        ([SYSTEM], {}, []),
        ([SYSTEM], {"agent": "pi"}, []),
        ([compaction()], {"agent": "atomic"}, []),
        ([VERBATIM], {}, []),
        ([user("x")], {"agent": "atomic"}, ["atomic"]),
        ([summary_compaction("s", "e1")], {}, ["pi"]),
    ],
)
def test_an_installed_agent_is_asked_only_if_nothing_else_tells_its_version(messages, known, asked):
    keys: list[str] = []
    chosen_for(*messages, **known, version_of=keys.append)
    assert keys == asked


@pytest.mark.parametrize(
    ("agent", "version", "name"),
    [
        *(("pi", version, "pi-0.86") for version in ((0, 58, 3), (0, 86, 9))),
        *(("pi", version, "pi") for version in ((0, 87, 0), (1, 5, 2))),
        *(("atomic", version, "atomic-0.8") for version in ((0, 8, 30), (0, 9, 8))),
        *(("atomic", version, "atomic-0.9.9") for version in ((0, 9, 9), (0, 9, 10))),
        *(("atomic", version, "atomic-0.9") for version in ((0, 9, 11), (1, 0, 0))),
    ],
)
def test_if_neither_place_nor_content_tells_the_version_the_installed_one_counts(agent, version, name):
    for untold in ([user("x")], [summary_compaction("s", "e1")], []):
        reading = chosen_for(*untold, agent=agent, version_of=installed(**{agent: version}))
        assert (reading.reader.name, reading.is_guess) == (name, False)
        assert f"{'.'.join(map(str, version))} is installed" in reading.reason


@pytest.mark.parametrize(("version", "name"), [((0, 86, 1), "pi-0.86"), ((0, 87, 1), "pi")])
def test_a_compaction_of_pi_tells_no_version(version, name):
    compacted = summary_compaction("s", "e1")
    assert chosen_for(compacted, version_of=installed(pi=version)).reader.name == name
    assert chosen_for(compacted, SYSTEM, version_of=installed(pi=(0, 86))).reader.name == "pi"


@pytest.mark.parametrize(
    ("messages", "known", "name"),
    [
        ([user("x"), assistant(text("y"))], {}, "pi"),
        ([], {}, "pi"),
        ([user("x")], {"agent": "another"}, "pi"),
        ([user("x"), compaction()], {"own": {"e2": "e1"}}, "pi"),
        ([user("x")], {"version_of": installed(pi=(0, 86), atomic=(0, 9, 8))}, "pi"),
        *(([one], {"agent": "pi"}, "pi") for one in (user("x"), VERBATIM, compaction())),
        ([user("x"), context_edit("e1", None)], {"agent": "pi", "own": {"e2": "e1"}}, "pi"),
        # What only pi writes contradicts the place.
        ([SYSTEM, context_edit("e1", None)], {"agent": "atomic"}, "atomic-0.9"),
        ([SYSTEM, compaction()], {"agent": "atomic", "own": {"e2": "e1"}}, "atomic-0.8"),
    ],
)
def test_otherwise_the_reader_is_a_guess_and_says_so(messages, known, name):
    reading = chosen_for(*messages, **known)
    assert (reading.reader.name, reading.is_guess) == (name, True)
    assert "guess" in reading.reason


def test_every_reason_for_a_reader_is_distinguished():
    told = [
        chosen_for(user("x"), chosen="pi"),
        chosen_for(user("x"), agent="atomic", version_of=installed(atomic=(0, 9, 8))),
        *(chosen_for(one, agent="atomic") for one in (user("x"), VERBATIM, compaction())),
        *(chosen_for(one, agent="pi") for one in (user("x"), SYSTEM)),
        *(chosen_for(one) for one in (user("x"), VERBATIM, compaction(), summary_compaction("s", "e1"))),
        *(chosen_for(one) for one in (context_edit("e1", None), SYSTEM, USAGE, THOUGHTFUL, REPEATING)),
    ]
    assert len({reading.reason for reading in told}) == len(told) == 16


def test_every_compaction_and_edit_of_redlines_does_not_change_the_reader_but_those_before_do():
    messages = (user("x"), compaction(), USAGE, compaction())
    assert chosen_for(*messages).reader.name == "atomic-0.8"
    assert chosen_for(*messages, own={"e2": "e1"}).reader.name == "pi"
    assert chosen_for(user("x"), USAGE, own={"e2": "e1"}).is_guess is False, "only those count as Redline's"
    edits = [context_edit("e1", None)] * 3
    for own, is_guess in (({"e4": "e1"}, True), ({"e4": "e2"}, False), ({"e3": "e1"}, False)):
        assert chosen_for(user("x"), *edits, own=own).is_guess is is_guess
    assert not chosen_for(user("x"), *edits, own={"e3": "e1", "e4": "nowhere"}, agent="pi").reason.count("edit")


@pytest.mark.parametrize("details", [None, "verbatim-lines", ["strategy"], {"strategy": "other"}, {"strategy": []}])
def test_only_verbatim_lines_identify_the_newer_atomic(details):
    plain = {**VERBATIM, "details": details}
    assert chosen_for(plain, agent="atomic", version_of=installed(atomic=(0, 9, 8))).reader.name == "atomic-0.8"


@pytest.mark.parametrize(
    ("recorded", "read_as", "agent", "may"),
    [
        (SYSTEM, "pi-0.86", "pi", True),
        (SYSTEM, "pi-0.86", "", True),
        (SYSTEM, "pi-0.86", "atomic", False),
        (SYSTEM, "pi", "pi", False),
        (SYSTEM, "atomic-0.8", "", False),
        (user("x"), "pi-0.86", "pi", False),
    ],
)
def test_an_appended_entry_can_only_show_newer_versions_of_its_agent(recorded, read_as, agent, may):
    (entry,) = session_log(chain(recorded)).entries
    assert may_show_another(entry, read_as, agent) is may


def test_an_unknown_reader_is_bad_input_with_a_list_of_known_ones():
    assert refusal(lambda: choose_reader((), chosen="atomic-2"), "atomic-2", *READERS) == "2 unknown_reader"


def test_only_atomic_honours_what_redline_writes():
    assert [name for name, one in READERS.items() if EntryKind.DELETION in one.honours] == ["atomic-0.8"]


def test_a_writer_that_all_versions_honour_needs_no_version():
    reading = choose_reader((), agent="codex", version_of=installed())
    assert (reading.reader.name, reading.is_guess) == ("codex", False)
    assert "all honour compacted" in reading.reason
    older = choose_reader((), agent="codex", version_of=installed(codex=(0, 104, 0)))
    assert (older.reader.name, older.is_guess) == ("codex-0.104", False)
    assert choose_reader((), agent="claude-code", version_of=installed()).is_guess


@pytest.mark.parametrize(
    ("agent", "recorded", "name", "writers", "sentence"),
    [
        ("claude-code", [2, 1, 330], "claude-code", "boundary fork", "Claude Code 2.1.330 continued it last"),
        ("claude-code", [2, 1, 142], "claude-code-2.1.142", "fork", "Claude Code 2.1.142 continued it last"),
        ("codex", [0, 169, 0], "codex", "compacted fork", "Codex 0.169.0 began it"),
        ("codex", [0, 104, 0], "codex-0.104", "compacted fork", "Codex 0.104.0 began it"),
    ],
)
def test_without_an_installed_agent_the_lines_tell_the_version(agent, recorded, name, writers, sentence):
    state = ParserState(extra={"client": recorded})
    reading = choose_reader((), agent=agent, version_of=installed(), state=state).of_session(state)
    assert (reading.reader.name, reading.is_guess) == (name, False)
    assert " ".join(writer.name for writer in reading.writers) == writers
    assert sentence in reading.reason
    # The installed one continues the session next; without a version in the lines nothing is known.
    newer = choose_reader((), agent=agent, version_of=installed(**{agent: (9, 9, 9)}), state=state)
    assert newer.reason.endswith("9.9.9 is installed")
    unreadable = ParserState(extra={"client": []})
    found = choose_reader((), agent=agent, version_of=installed(), state=unreadable)
    assert found.reason == choose_reader((), agent=agent, version_of=installed()).reason


@pytest.mark.parametrize("known", [{}, {"agent": "atomic"}])
def test_a_writer_that_other_versions_honour_is_refused_with_the_way_to_it(known):
    reading = chosen_for(user("x"), **known)
    words = ("--open-as atomic-0.8", reading.reason)
    assert refusal(lambda: reading.writer("context-compaction"), *words) == "2 unknown_writer"
    with pytest.raises(BadInput) as caught:
        reading.writer("boundary")
    assert "--open-as" not in caught.value.message, "no reader of this format honours it"
