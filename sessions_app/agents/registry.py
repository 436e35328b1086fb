"""The agents by their keys, the choice of agent and reader for a session, and what providers would refuse in it.

Providers' rules (`broken_pairs`) are checked in each generation of the agents: calls without results, and so on. The
branch that the agents continue comes first, then the others: a fault that they share is found once.
"""

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from sessions_app.agents.amp.agent import AMP
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.agents.codex.agent import CODEX
from sessions_app.agents.edge.installed_version import Version, installed_version
from sessions_app.agents.opencode.agent import OPENCODE
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pure.formats import Generation, Reader
from sessions_app.disk.discovery import Discovery, discover
from sessions_app.sessionlog.context import Measure, Measured, last_report
from sessions_app.sessionlog.diagnosis import AgentConsequence, Finding, ProviderRule, Severity, Violation, violations
from sessions_app.sessionlog.entries import Entry, EntryKind, Role, SummaryControl
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.model_facts import InputPrices
from sessions_app.sessionlog.session import ParserState
from sessions_app.sessionlog.tree import SessionTree

from .base import Agent, AgentPackage, ConfiguredModel, head_of
from .reading import Reading

AGENTS: Final[Mapping[str, Agent]] = {agent.key: agent for agent in (ATOMIC, PI, CLAUDE_CODE, CODEX, OPENCODE, AMP)}
GENERATIONS: Final[Mapping[str, tuple[Agent, Generation]]] = {
    generation.reader.name: (agent, generation) for agent in AGENTS.values() for generation in agent.format.generations
}
"""Each generation by the name of its reader, with its agent."""
READERS: Final[Mapping[str, Reader]] = {name: generation.reader for name, (_, generation) in GENERATIONS.items()}

READERS_HELP: Final = (
    f"open the session as one of {', '.join(READERS)} (default: chosen by location, content and installed version)"
)
"""The help of a flag that names a reader."""


def _writers_help() -> str:
    agents: dict[str, dict[str, None]] = {}
    for agent, generation in GENERATIONS.values():
        for writer in generation.writers:
            agents.setdefault(writer.name, {})[agent.label] = None
    named = (f"{name} ({', '.join(labels)})" for name, labels in agents.items())
    return f"{', '.join(named)}, if the version that continues the session honours it (default: the best one)"


WRITERS_HELP: Final = _writers_help()
"""The help of a flag that names a writer."""

VERBATIM_READER: Final = "atomic-0.9"
DELETION_READER: Final = "atomic-0.8"
PI_READER: Final = "pi"
"""The name of the reader for the versions that entries can indicate."""
NOTHING_APPENDED: Final[Mapping[str, str]] = {}


def agent_of(path: Path) -> str:
    """The key of the agent among whose files a path is, or whose format the file certainly has; empty if neither."""
    placed = next((key for key, agent in AGENTS.items() if agent.store.owns(path)), "")
    head = b"" if placed else head_of(path)
    return placed or next((key for key, agent in AGENTS.items() if agent.store.recognises(head)), "")


def agent_at(path: Path) -> Agent:
    """The agent whose parser reads the file at a path."""
    return agent_by(agent_of(path))


def agent_by(found: str) -> Agent:
    """The agent that `agent_of` found. Files of no agent are read as pi's; Atomic's parser is the same."""
    return AGENTS.get(found, PI)


def default_roots(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each agent's default session directories, with the agent's key."""
    return [(root, key) for key, agent in AGENTS.items() for root in agent.store.roots(environment)]


def model_windows(home: Path, own: Agent | None = None) -> dict[str, int]:
    """Context windows in tokens by model id, from the agents' configurations: that of a session's `own` agent takes
    precedence, then the first of AGENTS."""
    return {one.id: one.window for one in _configured_models(home, own) if one.window is not None}


def model_prices(home: Path, own: Agent | None = None) -> dict[str, InputPrices]:
    """Prices by model id, from the agents' configurations, with the precedence of `model_windows`."""
    return {one.id: one.prices for one in _configured_models(home, own) if one.prices is not None}


def _configured_models(home: Path, own: Agent | None) -> Iterator[ConfiguredModel]:
    for agent in (*reversed(tuple(AGENTS.values())), *filter(None, [own])):
        yield from agent.settings.models(home)


def reader_named(name: str) -> Reader:
    """The reader with this name. Raises BadInput `unknown_reader`."""
    if name not in READERS:
        raise BadInput("unknown_reader", f"No session can be opened as {name}. Known are {', '.join(READERS)}.")
    return READERS[name]


def key_of_reader(name: str) -> str:
    """The key of the agent with this reader; empty if there is no such reader."""
    return GENERATIONS[name][0].key if name in GENERATIONS else ""


def agent_with_reader(name: str) -> Agent | None:
    """The agent with this reader, if there is one."""
    return GENERATIONS[name][0] if name in GENERATIONS else None


def readers_of(agent: Agent) -> list[str]:
    """The names of the readers for sessions in the format of an agent."""
    return [name for name, (other, _) in GENERATIONS.items() if other.format.name == agent.format.name]


def reading_by(name: str, reason: str) -> Reading:
    """The reading for a reader name. Raises BadInput `unknown_reader`."""
    reader_named(name)
    return _read_as(*GENERATIONS[name], reason)


def require_reader_of(agent: Agent, name: str) -> None:
    """Raise BadInput `unknown_reader` if a reader is not for sessions in the format of an agent."""
    if name not in readers_of(agent):
        raise BadInput(
            "unknown_reader",
            f"Sessions of {agent.label} cannot be opened as {name}. Nothing was done. Known are "
            f"{', '.join(readers_of(agent))}.",
        )


def package_at(directory: Path) -> AgentPackage:
    """The agents' package in a directory. Raises BadInput `no_agent_package`."""
    found = (agent.client.find_package(directory) for agent in AGENTS.values())
    return next(package for package in found if package is not None)


def reader_of_version(agent: Agent, version: str) -> Reader:
    """The reader for sessions of a version of an agent."""
    return generation_of(agent, tuple(map(int, version.split(".")))).reader


def generation_of(agent: Agent, version: Version) -> Generation:
    """The generation that a version of an agent belongs to."""
    return next(one for one in agent.format.generations if one.since <= version)


def version_installed(agent: str) -> Version | None:
    """The version of the installed agent with this key; None if it is not installed."""
    return installed_version(AGENTS[agent].client.program)


def discover_sessions(root: Path, agent: str) -> Discovery:
    """The sessions below a root of the agent with this key, or of any; the root is a real path.

    Raises BadInput `no_such_root`.
    """
    return AGENTS[agent].store.discover(root) if agent in AGENTS else discover(root)


def keeps_database(agent: str) -> bool:
    """Whether the sessions of the agent with this key are in databases directly in a root."""
    return agent in AGENTS and AGENTS[agent].store.keeps_database


class _Sign(NamedTuple):
    """The agent that wrote an entry, and the reader of that agent's versions, if the entry shows it."""

    agent: Agent
    reader: str
    words: str


def choose_reader(
    entries: Sequence[Entry],
    *,
    chosen: str = "",
    agent: str = "",
    own: Mapping[str, str] = NOTHING_APPENDED,
    version_of: Callable[[str], Version | None] = version_installed,
    state: ParserState | None = None,
) -> Reading:
    """The reader of a session: the user's choice, or that of the versions of its agent.

    The agent is determined by the location or the entries: `agent` is the key of the agent whose directory contains the
    file, or empty. The versions are those that the entries show; else the installed one, which continues the session
    next; else the one that the lines record, which continued it last. Otherwise it is the newest: as a guess, unless
    all versions honour its best writer and nothing in the session belongs to another agent. `version_of` is called with
    the key of an agent only if the entries show no version.

    `entries` are in file order, and `state` is that of the parser after them; without it the lines record no version.
    Entries that Redline appended are no evidence: `own` are the ids of the last entries of its writes, with the ids of
    the entries that these were written after.
    """
    if chosen:
        return reading_by(chosen, "you chose it")
    appended = _appended(entries, own) if own else own
    signs = [_sign(entry) for entry in entries if _is_sign(entry, appended)]
    placed = AGENTS.get(agent)
    if placed is not None and placed.format.name != PI.format.name:
        return _reading(placed, f"it is a session of {placed.label}", (), version_of, state)
    if placed is not None:
        is_compacted = any(entry.kind is EntryKind.DELETION for entry in entries)
        known_by = f"it is among {placed.label}'s sessions"
        return _reading(placed, known_by, signs, version_of, is_compacted=is_compacted)
    if not signs:
        reason = "neither its content nor its location shows which agent owns it, so this is a guess"
        return _read_as(PI, PI.format.generations[0], reason, is_guess=True)
    first = next((sign for sign in signs if sign.reader == VERBATIM_READER), signs[0])
    reading = _reading(first.agent, f"it contains {first.words}", signs, version_of)
    if not reading.is_guess:
        return reading
    # A compaction of pi's: its versions differ only in edits, and there is none.
    return replace(reading, reason=f"it contains {first.words}", is_guess=False)


def _reading(
    agent: Agent,
    known_by: str,
    signs: Sequence[_Sign],
    version_of: Callable[[str], Version | None],
    state: ParserState | None = None,
    *,
    is_compacted: bool = False,
) -> Reading:
    """The reading by an agent: of the versions that its last telling entry shows, of the installed one, or of the one
    that the lines record. `is_compacted`: the session has a deletion."""
    if len(agent.format.generations) == 1:
        return _read_as(agent, agent.format.generations[0], known_by)
    telling = [sign for sign in signs if sign.agent is agent and sign.reader]
    if telling:
        contains = f"it contains {telling[-1].words}"
        reason = contains if contains == known_by else f"{known_by}, and {contains}"
        return reading_by(telling[-1].reader, reason)
    version = version_of(agent.key)
    if version is not None:
        shown = ".".join(map(str, version))
        return _read_as(agent, generation_of(agent, version), f"{known_by}, and {agent.label} {shown} is installed")
    recorded = agent.format.recorded_version(state) if state is not None else None
    if recorded is not None:
        return _read_as(agent, generation_of(agent, recorded.numbers), f"{known_by}, and {recorded.sentence}")
    reading = _of_unknown_version(agent, known_by, signs)
    if is_compacted and agent is ATOMIC:  # Redline has compacted it for Atomic 0.8: so that this counts
        reason = f"{reading.reason}; Redline has compacted it for this version"
        return replace(reading, generation=GENERATIONS[DELETION_READER][1], reason=reason)
    return reading


def _of_unknown_version(agent: Agent, known_by: str, signs: Sequence[_Sign]) -> Reading:
    """The reading of the newest versions of an agent: a guess, unless it does not matter for what is written."""
    generations = agent.format.generations
    newest, writer = generations[0], generations[0].writers[0].name
    foreign = next((sign for sign in signs if sign.agent is not agent), None)
    if foreign is None and all(any(writer == found.name for found in one.writers) for one in generations):
        reason = f"{known_by}; no installed {agent.label} shows the version, and all honour {writer}"
        return _read_as(agent, newest, reason)
    contains = f"it contains {foreign.words}, and " if foreign is not None else ""
    unknown = f"neither its content nor an installed {agent.label} shows the version, so this is a guess"
    return _read_as(agent, newest, f"{known_by}, but {contains}{unknown}", is_guess=True)


def _read_as(agent: Agent, generation: Generation, reason: str, *, is_guess: bool = False) -> Reading:
    alternatives = tuple(other for family, other in GENERATIONS.values() if family.format.name == agent.format.name)
    return Reading(agent, generation, reason, is_guess, alternatives)


def _appended(entries: Sequence[Entry], own: Mapping[str, str]) -> Container[str]:
    """The ids of all entries of Redline's writes: one write appends several edits, each after the one before."""
    starts = dict(own)
    for entry in reversed(entries):
        start = starts.get(entry.id)
        if entry.kind is EntryKind.EDIT and start is not None and entry.parent_id not in (None, start):
            starts[str(entry.parent_id)] = start
    return starts


def _is_sign(entry: Entry, appended: Container[str]) -> bool:
    if not entry.sole_agent and not entry.rebuilds:
        return False
    return entry.kind not in (EntryKind.DELETION, EntryKind.EDIT) or entry.id not in appended


def _sign(entry: Entry) -> _Sign:
    if isinstance(entry.control, SummaryControl) and entry.control.is_verbatim:
        return _Sign(ATOMIC, VERBATIM_READER, "a compaction that Atomic writes from 0.9.9 on")
    if entry.kind is EntryKind.DELETION:
        return _Sign(ATOMIC, DELETION_READER, f"a {entry.type}, which Atomic wrote until 0.9.8")
    if entry.sole_agent:
        since, mark = "0.87" if entry.kind is EntryKind.EDIT else "0.86", f"a {entry.type} entry"
        if entry.kind is EntryKind.SUMMARY:
            mark = "a compaction with a system message"
        elif entry.is_message:
            mark = "a system message" if entry.role == Role.SYSTEM else "an assistant message with a thinking level"
        return _Sign(PI, PI_READER, f"{mark}, which only pi {since} and newer write")
    return _Sign(PI, "", f"a {entry.type}, which pi honours and Atomic does not")


def may_show_another(entry: Entry, read_as: str, agent: str) -> bool:
    """Whether an appended entry, which rebuilds nothing, may show other versions than those of the reader in use.

    `agent` is the key of the agent whose directory contains the file, or empty.
    """
    writer = AGENTS.get(entry.sole_agent)
    if writer is None or agent not in ("", writer.key):
        return False
    return any(read_as == generation.reader.name for generation in writer.format.generations[1:])


MOST_ENTRIES: Final = 500_000
"""The maximum number of entries on all examined branches together; the first branch is always examined."""
REPAIRS: Final = {
    ProviderRule.UNANSWERED_CALL: "answers the call with a result of its own",
    ProviderRule.REPEATED_CALL_ID: "leaves the second call out",
    ProviderRule.STRAY_RESULT: "leaves the result out",
    ProviderRule.REPEATED_RESULT: "leaves the result out",
    ProviderRule.EMPTY_CONTENT: "leaves the message out",
}
"""How agents repair each violation before they send the conversation."""

_Identity = tuple[ProviderRule, str, str]


def broken_pairs(tree: SessionTree, generations: Sequence[Generation]) -> Iterator[Finding]:
    """The violations of providers' rules at the leaves of a tree."""
    known: set[_Identity] = set()
    budget = MOST_ENTRIES
    for leaf in _leaves(tree):
        if budget <= 0:
            return
        branch = tree.branch(leaf.id)
        budget -= len(branch)
        places = {entry.id: entry for entry in branch}
        found = [
            {(one.rule, one.entry_id, one.call_id): one for one in violations(generation.reader.rebuild(branch))}
            for generation in generations
        ]
        for identity in dict.fromkeys(identity for one in found for identity in one):
            if identity not in known:
                known.add(identity)
                yield _finding(places[identity[1]], identity, found, generations)


def _leaves(tree: SessionTree) -> Iterator[Entry]:
    """The entries without children, the one that the agents continue from first."""
    parents = set(tree.parents)
    for position in range(len(tree.entries) - 1, -1, -1):
        entry = tree.entries[position]
        if position not in parents and tree.position(entry.id) == position:
            yield entry


def _finding(
    entry: Entry, identity: _Identity, found: Sequence[dict[_Identity, Violation]], generations: Sequence[Generation]
) -> Finding:
    fault = next(one[identity].fault for one in found if identity in one)
    consequences = tuple(
        _consequence(generation.label, one.get(identity)) for generation, one in zip(generations, found, strict=True)
    )
    rule = identity[0].value
    return Finding(rule, entry.number, entry.offset, entry.length, fault, consequences, is_repairable=False)


def _consequence(agent: str, violation: Violation | None) -> AgentConsequence:
    if violation is None:
        return AgentConsequence(agent, Severity.NONE, "is not affected")
    if violation.is_repaired:
        repair = REPAIRS.get(violation.rule, "repairs it before it sends the conversation")
        return AgentConsequence(agent, Severity.LOSS, repair)
    return AgentConsequence(agent, Severity.FATAL, f"sends it, and providers refuse: {violation.error}")


def fitting_reader(agent: Agent, branch: Sequence[Entry], reader: Reader) -> str:
    """The name of the reader whose context fits the last report best; empty if the report fits this reader's context.

    A report may be much larger than a reader's context, because instructions and tools are not in the session.
    """
    place = last_report(branch)
    if place is None:
        return ""

    def measure(other: Reader) -> Measure:
        estimate = other.rebuild(branch[: place + 1]).estimate
        return Measure(Measured(branch[place].usage or 0, estimate))

    if not measure(reader).is_of_another_context:
        return ""
    others = {name: measure(READERS[name]) for name in readers_of(agent) if name != reader.name}
    ratios = {
        name: found.report.ratio
        for name, found in others.items()
        if found.report is not None and found.report.estimate and not found.is_of_another_context
    }
    return min(ratios, key=lambda name: abs(math.log(ratios[name])), default="")
