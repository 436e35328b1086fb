"""EDGE: what agents have in common whose sessions are single files of lines, one session each."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sessions_app.sessionlog.certificate import LedgerResult
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.diagnosis import (
    FINDINGS_KEPT,
    AgentConsequence,
    Examination,
    Finding,
    Severity,
    damage_finding,
)
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import BadInput, SystemFailure
from sessions_app.sessionlog.lines import Line
from sessions_app.sessionlog.model_prices import InputPrices
from sessions_app.sessionlog.repair_pieces import RepairPiece
from sessions_app.sessionlog.session import Damage, DamageKind, Header, Parser, ParserState, read_session
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.sessionlog.versions import RecordedVersion

from .agent_settings import Settings
from .base import Generation
from .bridges import Bridge
from .changes import NewFile, WriteFacts
from .programs import Client
from .pure.summary_format import SummaryFormat
from .store import Store

_SKIPPED: Final = "skips the line"
_UNTIED: Final = "may not find what comes before or after it"
_REFUSED: Final = "does not open the session"
_OF_TREE: Final = frozenset({DamageKind.DUPLICATE_ID, DamageKind.MISSING_PARENT, DamageKind.CYCLE})


class SessionFileAgent(ABC):
    """The parts of an `Agent` that most agents share. `key` and `label` are the agent's own."""

    key: str
    label: str
    current_version: int = 1
    store: Store
    bridge: Bridge | None = None
    client: Client = Client()
    settings: Settings = Settings()
    generations: Sequence[Generation]

    @property
    def format(self) -> str:
        return self.key

    def tree(self, entries: Sequence[Entry]) -> SessionTree:
        return SessionTree(entries)

    def new_entry_id(self) -> str:
        return secrets.token_hex(4)

    @abstractmethod
    def parser(self, state: ParserState, damage: list[Damage]) -> Parser: ...

    def recorded_requests(self, entries: Sequence[Entry], line: Callable[[Entry], bytes]) -> LedgerResult | None:
        """Its sessions record none."""
        del entries, line
        return None

    def reworded_entries(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterable[str]:
        """It sends what was recorded."""
        del context, line
        return ()

    def migrate(self, lines: Iterable[Line], name: str, header: Header) -> Iterator[bytes]:
        """There is only one version of the format."""
        del lines, header
        raise BadInput("is_current", f"{name} is in the current format of {self.label}. No copy was made.")

    def examine(self, lines: Iterable[Line], name: str) -> Examination:
        """Damaged lines, faults of the tree, and what keeps versions from opening the session."""
        log = read_session(self.parser(ParserState(), []), lines, name)
        tree = self.tree(log.entries)
        obstacles = list(self.obstacles(log.state))
        found = [*log.damage, *tree.damage][:FINDINGS_KEPT]
        findings = [self._finding(damage) for damage in [*found, *obstacles]]
        return Examination(findings, log.damaged + tree.damaged - len(found), tree)

    def obstacles(self, state: ParserState) -> Iterator[Damage]:
        """What keeps some versions from opening a session with this state, although its lines can be read."""
        if state.header is None:
            yield Damage(DamageKind.NO_HEADER, 1, 0, 0, "the session has no header")

    def consequence(self, kind: DamageKind, generation: Generation) -> tuple[Severity, str]:
        """What versions make of damage of this kind: they leave out what they cannot use."""
        del generation
        if kind is DamageKind.NO_HEADER:
            return Severity.FATAL, _REFUSED
        if kind is DamageKind.MORE_ON_LINE:
            return Severity.LOSS, "reads its first value only"
        return Severity.LOSS, _UNTIED if kind in _OF_TREE else _SKIPPED

    def _finding(self, damage: Damage) -> Finding:
        consequences = (
            AgentConsequence(generation.label, *self.consequence(damage.kind, generation))
            for generation in self.generations
        )
        return damage_finding(damage, tuple(consequences), is_repairable=False)

    def repair(self, read: Callable[[], Iterable[Line]], new_header: Header) -> Iterator[RepairPiece]:
        del read, new_header
        raise SystemFailure("no_repair", f"Sessions of {self.label} cannot be repaired by Redline. No copy was made.")

    def leaf_line(
        self, entry_id: str, parent_id: str | None, moment: datetime, *, undoes: bool = False
    ) -> bytes | None:
        """There is no such line."""
        del entry_id, parent_id, moment, undoes
        return None

    @property
    def summary_format(self) -> SummaryFormat | None:
        """It has none."""
        return None

    def label_line(self, entry_id: str, parent_id: str, moment: datetime, target_id: str, label: str) -> bytes | None:
        """There is no such line."""
        del entry_id, parent_id, moment, target_id, label
        return None

    def branch_copy(self, branch: Sequence[Entry], facts: WriteFacts) -> NewFile | None:
        """New sessions are made by the writers."""
        del branch, facts
        return None

    @property
    def missing_forms(self) -> Mapping[str, str]:
        return {
            "move": f"Sessions of {self.label} have no entry that makes it continue after an earlier one. Fork from "
            "there instead.",
            "label": f"Sessions of {self.label} have no labels.",
        }

    @abstractmethod
    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]: ...

    def recorded_version(self, state: ParserState) -> RecordedVersion | None:
        """Its lines record none, or all versions read them alike."""
        del state
        return None

    def refused_writers(self, state: ParserState) -> Mapping[str, str]:
        del state
        return {}

    def recorded_prices(self, lines: Iterable[bytes], model: str) -> InputPrices | None:
        del lines, model
        return None
