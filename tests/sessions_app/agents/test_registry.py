"""The registry: the agent of a path, and the reader of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.base import Agent
from sessions_app.agents.registry import AGENTS, READERS, agent_of, choose_reader
from sessions_app.sessionlog.entries import EntryKind
from sessions_app.sessionlog.errors import BadInput
from tests.factories import (
    assistant,
    branch_of,
    chain,
    compaction,
    context_edit,
    session_log,
    summary_compaction,
    text,
    user,
)

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
def test_a_path_belongs_to_the_agent_whose_directory_contains_it(path: str, agent: str) -> None:
    assert agent_of(Path(path)) == agent


@pytest.mark.parametrize("agent", AGENTS.values(), ids=list(AGENTS))
def test_the_default_session_directory_of_an_agent_is_in_its_directory(agent: Agent) -> None:
    assert agent_of(Path(agent.sessions)) == agent.key


# ---- readers ------------------------------------------------------------------------------------------------

USAGE = {"type": "usage", "kind": "summary", "provider": "p", "model": "m", "usage": {"input": 1}}
THOUGHTFUL = {**assistant(text("so")), "thinkingLevel": "high"}
"""Entries that only pi writes, since 0.86."""
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
def test_the_users_choice_precedes_the_location_which_precedes_the_entries(
    messages: list[dict[str, Any]], chosen: str, agent: str, name: str
) -> None:
    reading = choose_reader(branch_of(chain(*messages)), chosen=chosen, agent=agent)
    assert reading.reader.name == name
    assert reading.reason


def test_every_reason_for_a_reader_is_distinguished() -> None:
    def reason(*messages: dict[str, Any], **known: str) -> str:
        return choose_reader(branch_of(chain(*messages)), **known).reason

    reasons = [
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
    assert len(set(reasons)) == len(reasons)


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


def test_entries_appended_by_redline_do_not_change_the_reader() -> None:
    recorded = chain(user("x"), compaction(), USAGE, compaction())
    entries = session_log(recorded).entries
    assert choose_reader(entries).reader.name == "atomic-0.8"
    assert choose_reader(entries, own={"e2"}).reader.name == "pi"


@pytest.mark.parametrize(
    "details", [None, "verbatim-lines", ["strategy"], {"strategy": "other"}, {"strategy": []}]
)
def test_only_verbatim_lines_identify_the_newer_atomic(details: Any) -> None:
    branch = branch_of(chain({**VERBATIM, "details": details}))
    assert choose_reader(branch, agent="atomic").reader.name == "atomic-0.8"


def test_an_empty_branch_has_a_reader() -> None:
    assert choose_reader((), agent="").reader.name == "atomic-0.8"


def test_an_unknown_reader_is_bad_input_with_a_list_of_known_ones() -> None:
    with pytest.raises(BadInput) as caught:
        choose_reader((), chosen="atomic-2")
    assert caught.value.code == "unknown_reader"
    assert "atomic-2" in caught.value.message
    assert all(name in caught.value.message for name in READERS)


def test_only_atomic_honours_what_redline_writes() -> None:
    assert {name: EntryKind.DELETION in reader.honours for name, reader in READERS.items()} == {
        "atomic-0.8": True,
        "atomic-0.9": False,
        "atomic-0.9.9": False,
        "pi": False,
        "pi-0.86": False,
    }
