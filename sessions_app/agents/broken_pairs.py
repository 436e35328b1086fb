"""What providers would refuse in a session, in each generation of the agents: calls without results, and so on.

The branch that the agents continue comes first, then the others: a fault that they share is found once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sessions_app.sessionlog.diagnosis import AgentConsequence, Finding, Severity
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.provider_rules import ProviderRule, Violation, violations
from sessions_app.sessionlog.tree import SessionTree

from .format import Generation

MOST_ENTRIES: Final = 500_000
"""Branches are examined until they have this many entries together; the first one always is."""
REPAIRS: Final = {
    ProviderRule.UNANSWERED_CALL: "answers the call with a result of its own",
    ProviderRule.REPEATED_CALL_ID: "leaves the second call out",
    ProviderRule.STRAY_RESULT: "leaves the result out",
    ProviderRule.REPEATED_RESULT: "leaves the result out",
    ProviderRule.EMPTY_CONTENT: "leaves the message out",
}
"""What agents do about a violation before they send the conversation."""

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
        found = [_by_identity(violations(one.reader.rebuild(branch))) for one in generations]
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


def _by_identity(found: Iterable[Violation]) -> dict[_Identity, Violation]:
    return {(one.rule, one.entry_id, one.call_id): one for one in found}


def _finding(
    entry: Entry,
    identity: _Identity,
    found: Sequence[dict[_Identity, Violation]],
    generations: Sequence[Generation],
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
