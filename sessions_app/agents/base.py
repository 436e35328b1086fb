"""The protocol of agents. `registry` lists the agents.

Code outside `agents` never uses a field name of an agent's files; it uses the agent's `Agent` object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from sessions_app.sessionlog.certificate import LedgerResult
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.diagnosis import Examination
from sessions_app.sessionlog.entries import Entry, Texts
from sessions_app.sessionlog.lines import Line
from sessions_app.sessionlog.model_prices import InputPrices
from sessions_app.sessionlog.repair_pieces import RepairPiece
from sessions_app.sessionlog.session import Damage, Header, Parser, ParserState
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.sessionlog.versions import RecordedVersion

from .agent_settings import Settings
from .bridges import Bridge
from .changes import NewFile, RestoreLines, SessionWriter, WriteFacts
from .programs import Client
from .pure.contexts import PlanRules, Reader, TurnOrder
from .pure.summary_format import SummaryFormat
from .store import Store


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
    """Whether `Agent.leaf_line` gives a line."""
    turns: TurnOrder | None = None
    """None if messages are sent in the order in which they are rebuilt."""
    since: tuple[int, ...] = ()
    """The first of these versions; empty for all that are older than those of the other generations."""


class Agent(Protocol):
    """Everything that Redline needs to know about an agent."""

    @property
    def key(self) -> str:
        """Its name in the configuration and the database."""
        ...

    @property
    def label(self) -> str:
        """Its name for people."""
        ...

    @property
    def format(self) -> str:
        """The format of its sessions, which agents may share: their readers can be chosen for each other's sessions."""
        ...

    @property
    def current_version(self) -> int:
        """The version of the format that it writes; other sessions cannot be written to."""
        ...

    @property
    def generations(self) -> Sequence[Generation]:
        """Its generations, the current one first."""
        ...

    def tree(self, entries: Sequence[Entry]) -> SessionTree:
        """The tree of a session's entries, given in file order."""
        ...

    def new_entry_id(self) -> str:
        """An id as the agent gives them, different each time."""
        ...

    def parser(self, state: ParserState, damage: list[Damage]) -> Parser:
        """A parser that starts where another one ended, or with a new `ParserState`."""
        ...

    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        """A message of the context as the agent rebuilds it, given the line of its entry and of its edit."""
        ...

    def sent_messages(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterable[Mapping[str, Any]]:
        """The messages of a context as the agent sends them, with role and content.

        `line` reads the recorded bytes of an entry. What the agent adds on each start is not among them.
        """
        ...

    def reworded_entries(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterable[str]:
        """The ids of the entries around whose text the agent puts words of its own: `sent_messages` gives only what was
        recorded of them."""
        ...

    def reparse_entry(self, raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
        """The entry at the position of an earlier one; None if there is none any more."""
        ...

    def recorded_requests(self, entries: Sequence[Entry], line: Callable[[Entry], bytes]) -> LedgerResult | None:
        """What the requests that a session records show of its reading; None if it records none."""
        ...

    def migrate(self, lines: Iterable[Line], name: str, header: Header) -> Iterator[bytes]:
        """The lines of a copy at `current_version`; `header` is for a session without one.

        Raises BadInput `is_current`, and `not_a_session` at the end.
        """
        ...

    def leaf_line(
        self, entry_id: str, parent_id: str | None, moment: datetime, *, undoes: bool = False
    ) -> bytes | None:
        """A line that adds nothing to the context: appended, it lets the agent continue after an earlier entry, or with
        an empty conversation if `parent_id` is None. None if the agent has no such line.

        `undoes`: it takes a compaction back.
        """
        ...

    def label_line(self, entry_id: str, parent_id: str, moment: datetime, target_id: str, label: str) -> bytes | None:
        """A line that labels an entry, or takes its label away if `label` is empty. None if the agent has no labels."""
        ...

    def branch_copy(self, branch: Sequence[Entry], facts: WriteFacts) -> NewFile | None:
        """A new session with all recorded lines of a branch, and their labels, so that the agent rebuilds the same
        context and everything that its compactions removed is still there. None if only the writers make new sessions.
        """
        ...

    @property
    def missing_forms(self) -> Mapping[str, str]:
        """What the agent's files have no form for, among `move` and `label`; each with sentences that say so, and what
        can be done instead."""
        ...

    @property
    def summary_format(self) -> SummaryFormat | None:
        """How it records summaries that Redline can append; None if it has no such form."""
        ...

    def examine(self, lines: Iterable[Line], name: str) -> Examination:
        """What is wrong with a file, and what each agent that reads it makes of that.

        Raises BadInput `not_a_session`.
        """
        ...

    def repair(self, read: Callable[[], Iterable[Line]], new_header: Header) -> Iterator[RepairPiece]:
        """The pieces of a repaired copy, which is free of every repairable finding, and of what it does not have.

        `read` reads the lines of the file, and always the same; `new_header` is for a session without a header.
        """
        ...

    def recorded_version(self, state: ParserState) -> RecordedVersion | None:
        """The version of the agent that a session's lines record; None if they record none, or all read them alike.
        `state` is that of the parser after all lines of the session."""
        ...

    def refused_writers(self, state: ParserState) -> Mapping[str, str]:
        """The writers that must not write to a session although the installed agent honours what they write; each with
        the reason and what to do, as sentences. `state` is that of the parser after all lines of the session."""
        ...

    @property
    def store(self) -> Store: ...

    @property
    def client(self) -> Client: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def bridge(self) -> Bridge | None:
        """How it is made to ask Redline before it compacts; None if it cannot ask."""
        ...

    def recorded_prices(self, lines: Iterable[bytes], model: str) -> InputPrices | None:
        """The prices of a model that these lines of assistant messages record, the latest first; None if none does."""
        ...
