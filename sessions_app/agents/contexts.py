"""How an agent rebuilds a context, and what it allows a plan to delete of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Entry, EntryKind
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
