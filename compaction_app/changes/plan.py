"""What a change of a session would do at this moment: the same object for page, command and API."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from compaction_app.session_activity import Activity
from sessions_app.document.document import Document
from sessions_app.sessionlog.errors import Conflict, RedlineError
from sessions_app.storage.session_loader import TornLine


@dataclass(frozen=True, slots=True)
class Confirmations:
    """What a person has confirmed. A change requires some of them: see `ChangePlan.needs`."""

    live: bool = False
    """The session was written to in the last minutes, or a process has it open: an agent may continue past this."""
    after_torn_line: bool = False
    """The session ends in an incomplete line: the new one begins after a newline."""
    switch_branch: bool = False
    """The reviewed branch is not the active one; the commit makes it active."""
    not_honoured: bool = False
    """It is not known which agent owns this session: another one may ignore what is appended."""
    below_target: bool = False
    """The plan deletes less than required."""
    drop_newer: bool = False
    """The session has lines that its backup does not have, and loses them."""
    unverified: bool = False
    """Redline did not make the backup, so it cannot check whether it is complete."""


@dataclass(frozen=True)
class ChangePlan(ABC):
    """A planned change of one session."""

    NOT_DONE: ClassVar[str]
    """The sentence that says what did not happen, if the change is refused."""

    present: Document
    """The session as it is now."""
    activity: Activity
    """What others do with it."""
    torn: TornLine | None
    """Its last line, if that is torn."""
    needs: Mapping[str, RedlineError]
    """The confirmations it needs, by field of `Confirmations`, each with the error raised if it is missing."""

    @property
    @abstractmethod
    def facts(self) -> list[Any]:
        """What it would do, as JSON values."""

    @property
    def written_to(self) -> Path | None:
        """The session that must not be open elsewhere meanwhile; None if none is written to."""
        return self.present.path

    @property
    def path(self) -> str:
        return str(self.present.path)

    def digest(self) -> str:
        """Identifies this plan, so that a confirmation counts for it and for no other."""
        return hashlib.sha256(json.dumps([*self.facts, sorted(self.needs)]).encode()).hexdigest()[:32]

    def require_shown(self, shown: str | None) -> None:
        """Raise Conflict `plan_differs` if this is not the plan with the digest that was shown, if one was."""
        if shown is not None and shown != self.digest():
            raise Conflict(
                "plan_differs",
                f"{self.path} has changed since this was shown. {self.NOT_DONE} Check what would happen now.",
            )

    def require_confirmed(self, given: Confirmations) -> None:
        """Raise Conflict `open_in_agent`, and the error of the first confirmation that is missing."""
        if self.written_to is not None:
            self.activity.require_closed(self.written_to)
        for name, failure in self.needs.items():
            if not getattr(given, name):
                raise failure
