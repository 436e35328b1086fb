"""How an agent rebuilds a context, and what it allows a plan to delete of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Block, Entry, EntryKind
from sessions_app.sessionlog.protection import Protection


class Reader(Protocol):
    """One way in which an agent rebuilds what its model sees of a branch."""

    @property
    def name(self) -> str: ...

    @property
    def honours(self) -> frozenset[EntryKind]:
        """The kinds of entries after which it may omit something."""
        ...

    def ignores(self, entry: Entry) -> bool:
        """Whether it omits nothing because of an entry after which some reader would."""
        ...

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        """The active context of a branch, given root first."""
        ...


class PlanRules(Protocol):
    """What an agent allows a plan to delete."""

    def compactable(self, branch: Sequence[Entry], context: ActiveContext | None = None) -> Sequence[Message]:
        """The messages of a branch, given root first, that a plan may target, as left by earlier compactions.

        `context` is what the reader rebuilds of the branch, if that is known already.
        """
        ...

    def protection(self, entry: Entry) -> Protection | None:
        """Why an entry must not be deleted, wherever it is; None if it may be."""
        ...

    def replays(self, entry: Entry) -> bool:
        """Whether it is an assistant message whose thinking must be unchanged if it is the last that remains."""
        ...

    def companions(self, messages: Sequence[Message]) -> Mapping[str, tuple[str, ...]]:
        """For entries that must not be deleted alone: the entries that are deleted whenever they are, by id. Calls and
        results are joined in any case."""
        ...


class SentPiece(Protocol):
    """What the order in which entries are sent depends on."""

    @property
    def entry_id(self) -> str: ...

    @property
    def role(self) -> str: ...

    @property
    def reply(self) -> str: ...

    @property
    def result_for(self) -> str | None: ...

    @property
    def call_ids(self) -> tuple[str, ...]: ...

    @property
    def blocks(self) -> tuple[Block, ...]: ...


class Moved(NamedTuple):
    """An entry that will be sent before another one, which precedes it now; both by id."""

    entry_id: str
    before_id: str


class TurnOrder(Protocol):
    """How an agent sends what stands between two replies, if it puts that in an order of its own."""

    def arranged(self, messages: Sequence[Message], *, is_new: bool) -> list[Message]:
        """The messages of a context without some others, in the order in which the agent rebuilds it: from the lines of
        the same session, or from those of a new one, which may have another order."""
        ...

    def moved(
        self, before: Sequence[SentPiece], after: Sequence[SentPiece], line: Callable[[str], bytes]
    ) -> Sequence[Moved]:
        """Which entries overtake others if only those in `after` stay of those in `before`, both in the order of the
        context; each once, with the first one that it overtakes. `line` reads the line of an entry, given by id."""
        ...
