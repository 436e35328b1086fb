"""The registry: the agent of a path, and the reader of a session."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import AGENTS, READERS, agent_of, choose_reader, may_show_another
from sessions_app.sessionlog.entries import EntryKind
from sessions_app.sessionlog.errors import BadInput
from tests.factories import assistant, chain, compaction, context_edit, session_log, summary_compaction, text, user

SYSTEM = {"role": "system", "content": "be kind"}

# ---- agents -------------------------------------------------------------------------------------------------


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
    assert {agent_of(Path(root)) for root in agent.roots({})} == {agent.key}


# ---- readers ------------------------------------------------------------------------------------------------

USAGE = {"type": "usage", "kind": "summary", "provider": "p", "model": "m", "usage": {"input": 1}}
THOUGHTFUL = {**assistant(text("so")), "thinkingLevel": "high"}
"""Entries that only pi writes, since 0.86."""
VERBATIM = {"type": "compaction", "summary": "s", "details": {"strategy": "verbatim-lines"}}


REPEATING = summary_compaction("s", "e1") | {"systemMessage": {"content": "be kind"}}


def nothing_installed(key: str) -> None:
    """No agent is installed."""


def installed(**versions: tuple[int, ...]) -> Callable[[str], tuple[int, ...] | None]:
    return versions.get


def chosen_for(*messages: dict[str, Any], **known: Any) -> Reading:
    """The reading of a session with these messages; no agent is installed unless `version_of` says so."""
    return choose_reader(session_log(chain(*messages)).entries, **{"version_of": nothing_installed, **known})


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
        ([SYSTEM], {"agent": "pi"}, "pi"),
        ([THOUGHTFUL], {"agent": "pi"}, "pi"),
        ([USAGE], {"agent": "pi"}, "pi"),
        ([context_edit("e1", None)], {"agent": "pi"}, "pi"),
        ([REPEATING], {"agent": "pi"}, "pi"),
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
        ("pi", (0, 86, 9), "pi-0.86"),
        ("pi", (0, 58, 3), "pi-0.86"),
        ("pi", (0, 87, 0), "pi"),
        ("pi", (1, 5, 2), "pi"),
        ("atomic", (0, 8, 30), "atomic-0.8"),
        ("atomic", (0, 9, 8), "atomic-0.8"),
        ("atomic", (0, 9, 9), "atomic-0.9.9"),
        ("atomic", (0, 9, 10), "atomic-0.9.9"),
        ("atomic", (0, 9, 11), "atomic-0.9"),
        ("atomic", (1, 0, 0), "atomic-0.9"),
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
        ([user("x")], {"agent": "pi"}, "pi"),
        ([VERBATIM], {"agent": "pi"}, "pi"),
        ([compaction()], {"agent": "pi"}, "pi"),
        ([user("x"), context_edit("e1", None)], {"agent": "pi", "own": {"e2": "e1"}}, "pi"),
        ([user("x")], {"agent": "atomic"}, "atomic-0.9"),
        ([SYSTEM, context_edit("e1", None)], {"agent": "atomic"}, "atomic-0.9"),
        ([user("x"), compaction()], {"agent": "atomic", "own": {"e2": "e1"}}, "atomic-0.8"),
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


def test_compactions_and_edits_appended_by_redline_do_not_change_the_reader():
    messages = (user("x"), compaction(), USAGE, compaction())
    assert chosen_for(*messages).reader.name == "atomic-0.8"
    assert chosen_for(*messages, own={"e2": "e1"}).reader.name == "pi"
    assert chosen_for(user("x"), USAGE, own={"e2": "e1"}).is_guess is False, "only those count as Redline's"


def test_every_edit_of_a_write_is_redlines_and_none_before_it():
    edits = [context_edit("e1", None)] * 3
    assert chosen_for(user("x"), *edits, own={"e4": "e1"}).is_guess
    assert not chosen_for(user("x"), *edits, own={"e4": "e2"}).is_guess
    assert not chosen_for(user("x"), *edits, own={"e3": "e1"}).is_guess
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
    with pytest.raises(BadInput) as caught:
        choose_reader((), chosen="atomic-2")
    assert caught.value.code == "unknown_reader"
    assert "atomic-2" in caught.value.message
    assert all(name in caught.value.message for name in READERS)


def test_only_atomic_honours_what_redline_writes():
    honour = [name for name, reader in READERS.items() if EntryKind.DELETION in reader.honours]
    assert honour == ["atomic-0.8"]


def test_a_writer_that_all_versions_honour_needs_no_version():
    reading = choose_reader((), agent="codex", version_of=nothing_installed)
    assert (reading.reader.name, reading.is_guess) == ("codex", False)
    assert "all honour the writer compacted" in reading.reason
    older = choose_reader((), agent="codex", version_of=installed(codex=(0, 104, 0)))
    assert (older.reader.name, older.is_guess) == ("codex-0.104", False)
    assert choose_reader((), agent="claude-code", version_of=nothing_installed).is_guess
