"""What is wrong with a session, and what each agent makes of it. An agent finds it in its own files: see `agents`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from .session import Damage
from .tree import SessionTree

FINDINGS_KEPT: Final = 10_000
"""The number of findings that are kept in full; the others are only counted."""


class Severity(StrEnum):
    """How bad a finding is for one agent."""

    FATAL = "fatal"
    """The session cannot be opened, or not be continued."""
    LOSS = "loss"
    """The session can be continued, but something of it is lost."""
    NONE = "none"


class AgentConsequence(NamedTuple):
    """What one agent makes of a finding."""

    agent: str
    """The agent and its versions, for people."""
    severity: Severity
    text: str
    """The rest of a sentence that begins with the agent: "refuses to open the session"."""


class SharedConsequence(NamedTuple):
    """A consequence, and all agents that have it."""

    agents: str
    severity: Severity
    text: str


class Finding(NamedTuple):
    """One fault of a session: a damaged line, a wrong place in the tree, or a violation of a provider's rule."""

    kind: str
    """A `DamageKind`, or a `ProviderRule`."""
    number: int
    """The line, from 1."""
    offset: int
    """The line's first byte."""
    length: int
    detail: str
    consequences: tuple[AgentConsequence, ...]
    is_repairable: bool = True
    """Whether a repaired copy is free of it."""

    def obstacle(self, agent: str) -> str:
        """Why an agent of these versions cannot open the session, or not continue it; empty if it can."""
        fatal = (one.text for one in self.consequences if one.agent == agent and one.severity is Severity.FATAL)
        consequence = next(fatal, "")
        return f"{agent} {consequence} (line {self.number:,}: {self.detail})." if consequence else ""

    @property
    def severity(self) -> Severity:
        """The worst that happens in any agent."""
        found = {consequence.severity for consequence in self.consequences}
        return next((one for one in Severity if one in found), Severity.NONE)

    @property
    def shared_consequences(self) -> tuple[SharedConsequence, ...]:
        """Each consequence once, with its agents."""
        agents: dict[tuple[Severity, str], list[str]] = {}
        for one in self.consequences:
            agents.setdefault((one.severity, one.text), []).append(one.agent)
        return tuple(
            SharedConsequence(
                "every version" if 1 < len(self.consequences) == len(names) else ", ".join(names), severity, text
            )
            for (severity, text), names in agents.items()
        )


class Examination(NamedTuple):
    """What an agent finds wrong in one of its files, and the tree of its entries."""

    findings: list[Finding]
    """The first FINDINGS_KEPT of its lines, and as many of its tree."""
    more: int
    """The number of the others."""
    tree: SessionTree

    def obstacle(self, agent: str) -> str:
        """The first reason why an agent of these versions cannot open the session, or not continue it."""
        return next(filter(None, (finding.obstacle(agent) for finding in self.findings)), "")


class Diagnosis(NamedTuple):
    """All findings, in the order of their lines."""

    findings: tuple[Finding, ...]
    more: int
    """The number of findings that are not kept."""

    @property
    def total(self) -> int:
        return len(self.findings) + self.more

    @property
    def is_repairable(self) -> bool:
        """Whether a repaired copy is free of some finding."""
        return any(finding.is_repairable for finding in self.findings)


def diagnosis_of(findings: Iterable[Finding], more: int) -> Diagnosis:
    """The diagnosis with these findings, in any order."""
    ordered = sorted(findings, key=lambda finding: (finding.offset, finding.number, finding.kind))
    return Diagnosis(tuple(ordered), more)


def damage_finding(
    damage: Damage, consequences: tuple[AgentConsequence, ...], *, is_repairable: bool = True
) -> Finding:
    """The finding for damage of a line or of the tree."""
    return Finding(
        damage.kind.value,
        damage.number,
        damage.offset,
        damage.length,
        damage.detail,
        consequences,
        is_repairable,
    )
