"""What the lines of an agent's sessions mean, and how changes are written as lines. It reads no file."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from sessions_app.sessionlog.entries import Entry, Texts
from sessions_app.sessionlog.errors import BadInput, SystemFailure
from sessions_app.sessionlog.lines import Line
from sessions_app.sessionlog.model_prices import InputPrices
from sessions_app.sessionlog.repair_pieces import RepairPiece
from sessions_app.sessionlog.session import Damage, DamageKind, Header, Parser, ParserState, read_session
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.sessionlog.versions import RecordedVersion

from .changes import NewFile, RestoreLines, SessionWriter, WriteFacts
from .pure.contexts import PlanRules, Reader, TurnOrder
from .pure.summary_format import SummaryFormat

_SKIPPED: Final = "skips the line"
_UNTIED: Final = "may not find what comes before or after it"
_REFUSED: Final = "does not open the session"
_OF_TREE: Final = frozenset({DamageKind.DUPLICATE_ID, DamageKind.MISSING_PARENT, DamageKind.CYCLE})


@dataclass(frozen=True, slots=True)
class Generation:
    """The versions of an agent that read a session, and record what is deleted from it, in the same way."""

    label: str
    """The agent with its versions, as in "pi 0.87 and newer"."""
    reader: Reader
    rules: PlanRules
    writers: tuple[SessionWriter, ...]
    """The ways to record a deletion that these versions honour, the best one first."""
    restore_lines: RestoreLines | None = None
    """None if later lines cannot bring back single entries."""
    can_move_leaf: bool = True
    """Whether `Format.leaf_line` gives a line."""
    turns: TurnOrder | None = None
    """None if messages are sent in the order in which they are rebuilt."""
    since: tuple[int, ...] = ()
    """The first of these versions; empty for all that are older than those of the other generations."""


class Format(ABC):
    """The format of an agent's sessions. What an agent has no form for, or does not record, is left to this base."""

    name: str
    """Agents may share a format: their readers can be chosen for each other's sessions."""
    label: str
    """The name of the agent for people."""
    generations: Sequence[Generation]
    """Its generations, the current one first."""
    current_version: int = 1
    """The version of the format that the agent writes; other sessions cannot be written to."""
    summary_format: SummaryFormat | None = None
    """How the agent records summaries that Redline can append; None if it has no such form."""

    @abstractmethod
    def parser(self, state: ParserState, damage: list[Damage]) -> Parser:
        """A parser that starts where another one ended, or with a new `ParserState`."""

    @abstractmethod
    def reparse_entry(self, raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
        """The entry at the position of an earlier one; None if there is none any more."""

    def tree(self, entries: Sequence[Entry]) -> SessionTree:
        """The tree of a session's entries, given in file order."""
        return SessionTree(entries)

    def new_entry_id(self) -> str:
        """An id as the agent gives them, different each time."""
        return secrets.token_hex(4)

    @abstractmethod
    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        """A message of the context as the agent rebuilds it, given the line of its entry and of its edit."""

    @abstractmethod
    def sent_messages(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterable[Mapping[str, Any]]:
        """The messages of a context as the agent sends them, with role and content.

        `line` reads the recorded bytes of an entry. What the agent adds on each start is not among them.
        """

    def reworded_entries(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterable[str]:
        """The ids of the entries around whose text the agent puts words of its own: `sent_messages` gives only what was
        recorded of them."""
        del context, line
        return ()

    def recorded_requests(self, entries: Sequence[Entry], line: Callable[[Entry], bytes]) -> LedgerResult | None:
        """What the requests that a session records show of its reading; None if it records none."""
        del entries, line
        return None

    def recorded_version(self, state: ParserState) -> RecordedVersion | None:
        """The version of the agent that a session's lines record; None if they record none, or all read them alike.
        `state` is that of the parser after all lines of the session."""
        del state
        return None

    def recorded_prices(self, lines: Iterable[bytes], model: str) -> InputPrices | None:
        """The prices of a model that these lines of assistant messages record, the latest first; None if none does."""
        del lines, model
        return None

    def refused_writers(self, state: ParserState) -> Mapping[str, str]:
        """The writers that must not write to a session although the installed agent honours what they write; each with
        the reason and what to do, as sentences. `state` is that of the parser after all lines of the session."""
        del state
        return {}

    def leaf_line(
        self, entry_id: str, parent_id: str | None, moment: datetime, *, undoes: bool = False
    ) -> bytes | None:
        """A line that adds nothing to the context: appended, it lets the agent continue after an earlier entry, or with
        an empty conversation if `parent_id` is None. None if the agent has no such line.

        `undoes`: it takes a compaction back.
        """
        del entry_id, parent_id, moment, undoes
        return None

    def label_line(self, entry_id: str, parent_id: str, moment: datetime, target_id: str, label: str) -> bytes | None:
        """A line that labels an entry, or takes its label away if `label` is empty. None if the agent has no labels."""
        del entry_id, parent_id, moment, target_id, label
        return None

    @property
    def missing_forms(self) -> Mapping[str, str]:
        """What the agent's files have no form for, among `move` and `label`; each with sentences that say so, and what
        can be done instead."""
        return {
            "move": f"Sessions of {self.label} have no entry that makes it continue after an earlier one. Fork from "
            "there instead.",
            "label": f"Sessions of {self.label} have no labels.",
        }

    def branch_copy(self, branch: Sequence[Entry], facts: WriteFacts) -> NewFile | None:
        """A new session with all recorded lines of a branch, and their labels, so that the agent rebuilds the same
        context and everything that its compactions removed is still there. None if only the writers make new sessions.
        """
        del branch, facts
        return None

    def migrate(self, lines: Iterable[Line], name: str, header: Header) -> Iterator[bytes]:
        """The lines of a copy at `current_version`; `header` is for a session without one.

        Raises BadInput `is_current`, and `not_a_session` at the end.
        """
        del lines, header
        raise BadInput("is_current", f"{name} is in the current format of {self.label}. No copy was made.")

    def examine(self, lines: Iterable[Line], name: str) -> Examination:
        """What is wrong with a file, and what each agent that reads it makes of that.

        Raises BadInput `not_a_session`.
        """
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
        """The pieces of a repaired copy, which is free of every repairable finding, and of what it does not have.

        `read` reads the lines of the file, and always the same; `new_header` is for a session without a header.
        Raises SystemFailure `no_repair` if sessions of this format cannot be repaired.
        """
        del read, new_header
        raise SystemFailure("no_repair", f"Sessions of {self.label} cannot be repaired by Redline. No copy was made.")
