"""The certificate of a session: what was checked of the context that its agent will continue from, and the result.

(1) The context that the agent's reader rebuilds is the one that was approved, message by message.
(2) Providers accept it: see `diagnosis`. No damage of the file keeps the agent from continuing.
(3) The agent's own package, if it is installed, rebuilds the same context.
(4) The agent's installed client, if that is requested, sends the same messages when it continues a copy.
(5) If the session records the requests that were made of it, their messages are those of the reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from .diagnosis import Violation
from .text import plural


class PackageOutcome(StrEnum):
    EQUAL = "equal"
    DIFFERENT = "different"
    REFUSED = "refused"
    """The agent does not open the session."""
    FAILED = "failed"
    """The package, or the client, could not be run."""

    @property
    def is_bad(self) -> bool:
        """Whether it shows that the agent would not continue from the rebuilt context."""
        return self in (PackageOutcome.DIFFERENT, PackageOutcome.REFUSED)


class PackageResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result of the agent's own package, or of its client, for a session."""

    name: str
    version: str
    outcome: PackageOutcome
    detail: str = ""
    """The first difference, or the error, in words."""


class LedgerResult(msgspec.Struct, frozen=True, rename="camel"):
    """How many of the requests recorded in a session its reading explains."""

    requests: int
    compared: int
    """The number of latest requests whose messages are compared."""
    equal: int
    """The number of compared requests in which every message is explained."""
    messages: int
    reproduced: int
    """The number of messages that Redline derives from the lines before the request."""
    recorded: int
    """The number of other messages that the session contains as sent, because they have words of the client's."""

    @property
    def sentence(self) -> str:
        others = f", and {self.recorded:,} are recorded as they were sent" if self.recorded else ""
        return (
            f"{self.reproduced:,} of the {plural(self.messages, 'message')} of the last "
            f"{plural(self.compared, 'recorded request')} are those that Redline reads{others}."
        )


class CertifiedViolation(msgspec.Struct, frozen=True, rename="camel"):
    """A violation of a rule that providers enforce."""

    rule: str
    entry_id: str
    sentence: str
    is_repaired: bool

    @classmethod
    def of(cls, violation: Violation) -> CertifiedViolation:
        return cls(violation.rule, violation.entry_id, violation.sentence, violation.is_repaired)


class Certificate(msgspec.Struct, frozen=True, rename="camel"):
    """The result of checking the context at one leaf. It is stored as JSON."""

    reader: str
    checked_at: datetime
    leaf_id: str
    messages: int
    """The number of messages in the context."""
    violations: tuple[CertifiedViolation, ...] = ()
    refusal: str = ""
    """Why the agent cannot open the branch, or the file; empty if it can."""
    difference: str | None = None
    """The first difference from the approved context; empty if it is equal, None if none was approved."""
    package: PackageResult | None = None
    """The result of the agent's own package; None if it is not installed."""
    client: PackageResult | None = None
    """The result of the agent's client; None if it was not run."""
    ledger: LedgerResult | None = None
    """The result for the recorded requests; None if the session records none."""
    versions: str = ""
    """The agent and its versions that read the session in this way."""

    def to_json(self) -> dict[str, Any]:
        """The certificate as JSON, to be stored."""
        stored: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return stored

    @property
    def unrepaired(self) -> tuple[CertifiedViolation, ...]:
        """The violations that providers would refuse."""
        return tuple(one for one in self.violations if not one.is_repaired)

    @property
    def _compared(self) -> tuple[PackageResult, ...]:
        return tuple(one for one in (self.package, self.client) if one is not None)

    @property
    def holds(self) -> bool:
        """Whether no check found an obstacle to continuing the session."""
        is_bad = any(one.outcome.is_bad for one in self._compared)
        return not (self.unrepaired or self.refusal or self.difference or is_bad)

    @property
    def sentence(self) -> str:
        """The checks that were made, in one line."""
        checked = f"{plural(self.messages, 'message')} as in {self.versions or self.reader}"
        compared = ["the approved plan"] if self.difference is not None else []
        compared += [f"{one.name} {one.version}" for one in self._compared if one.outcome is not PackageOutcome.FAILED]
        return f"{checked}, compared with {' and '.join(compared)}" if compared else checked


def certified(violations: Iterable[Violation]) -> tuple[CertifiedViolation, ...]:
    """Violations in the form of a certificate."""
    return tuple(map(CertifiedViolation.of, violations))
