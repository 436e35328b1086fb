"""The agents by their keys, and the choice of agent and reader for a session."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Final

from sessions_app.sessionlog.controls import SummaryControl
from sessions_app.sessionlog.entries import Entry, EntryKind, Role
from sessions_app.sessionlog.errors import BadInput

from .atomic.agent import ATOMIC
from .base import Agent, AgentPackage, Generation, Reader, Reading
from .pi.agent import PI

AGENTS: Final[Mapping[str, Agent]] = {agent.key: agent for agent in (ATOMIC, PI)}
GENERATIONS: Final[Mapping[str, tuple[Agent, Generation]]] = {
    generation.reader.name: (agent, generation)
    for agent in AGENTS.values()
    for generation in agent.generations
}
"""Each generation by the name of its reader, with its agent."""
READERS: Final[Mapping[str, Reader]] = {
    name: generation.reader for name, (_, generation) in GENERATIONS.items()
}


def agent_of(path: Path) -> str:
    """The key of the agent whose directory contains a path; empty if there is none."""
    return next((key for key, agent in AGENTS.items() if agent.directory in path.parts), "")


def agent_at(path: Path) -> Agent:
    """The agent whose parser reads the file at a path. Other files are read as pi's; Atomic's parser is the same."""
    return AGENTS.get(agent_of(path), PI)


def model_windows(home: Path) -> dict[str, int]:
    """Context windows in tokens by model id, from the agents' configurations; the first of AGENTS takes precedence."""
    windows: dict[str, int] = {}
    for agent in reversed(list(AGENTS.values())):
        windows |= agent.model_windows(home)
    return windows


def reader_named(name: str) -> Reader:
    """Raises BadInput `unknown_reader`."""
    if name not in READERS:
        raise BadInput("unknown_reader", f"There is no reader {name}. Known are {', '.join(READERS)}.")
    return READERS[name]


def agent_with_reader(name: str) -> Agent | None:
    """The agent with this reader, if there is one."""
    return GENERATIONS[name][0] if name in GENERATIONS else None


def reading_by(name: str, reason: str) -> Reading:
    """The reading for a reader name. Raises BadInput `unknown_reader`."""
    reader_named(name)
    agent, generation = GENERATIONS[name]
    return Reading(agent, generation, reason)


def package_at(directory: Path) -> AgentPackage:
    """The agents' package in a directory. Raises BadInput `no_agent_package`."""
    found = (agent.find_package(directory) for agent in AGENTS.values())
    return next(package for package in found if package is not None)


def choose_reader(
    entries: Iterable[Entry], *, chosen: str = "", agent: str = "", own: Container[str] = ()
) -> Reading:
    """The reader of a session: the user's choice, or by its location, or by its entries, or a guess.

    `entries` are in file order. The first one that only one agent writes decides, so that entries appended later do not
    change the reader. `own` are the ids of entries that Redline appended, which do not count. `agent` is the key of the
    agent whose directory contains the file, or empty.
    """
    if chosen:
        return reading_by(chosen, "you chose it")
    revealing = [entry for entry in entries if entry.sole_agent or entry.rebuilds]
    if any(isinstance(entry.control, SummaryControl) and entry.control.is_verbatim for entry in revealing):
        return _reading(PI, "it contains a compaction that Atomic writes from 0.9.9 on")
    placed = AGENTS.get(agent)
    if placed is not None:
        return _reading(placed, f"it is among {placed.label}'s sessions")
    first = next(
        (entry for entry in revealing if entry.kind is not EntryKind.DELETION or entry.id not in own), None
    )
    if first is None:
        return _reading(
            ATOMIC,
            "neither its content nor its location shows which agent owns it, so this is a guess",
            is_guess=True,
        )
    if first.kind is EntryKind.DELETION:
        return _reading(ATOMIC, f"its first compaction is a {first.type}")
    if first.rebuilds:
        reason = f"its first compaction is a {first.type}, which pi honours and Atomic 0.8 does not"
    else:
        reason = f"it contains {_mark_of_pi(first)}, which only pi 0.86 and newer write"
    return _reading(PI, reason)


def _reading(agent: Agent, reason: str, *, is_guess: bool = False) -> Reading:
    generation = agent.generations[-1] if agent is ATOMIC else agent.generations[0]
    return Reading(agent, generation, reason, is_guess)


def may_show_another(entry: Entry, read_as: str) -> bool:
    """Whether an entry may show that a session belongs to another agent than the one with this reader."""
    owner, _ = GENERATIONS.get(read_as, (None, None))
    return bool(entry.sole_agent) and owner is not AGENTS[entry.sole_agent]


def _mark_of_pi(entry: Entry) -> str:
    if not entry.is_message:
        return f"a {entry.type} entry"
    return "a system message" if entry.role == Role.SYSTEM else "an assistant message with a thinking level"
