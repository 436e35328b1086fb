"""How an agent records summaries, and how it shows a conversation to the model that writes one.

A summary is not a deletion: it is generated, and a human reads and edits it before it is appended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol


class FileLists(NamedTuple):
    """The files of a summarised part, sorted as the agent sorts them. No file is in both lists."""

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()


class RecordedSummary(NamedTuple):
    """What the line of a summary has. A field that it does not have is None."""

    text: str
    files: FileLists | None
    """None if its details have no lists."""
    from_hook: bool
    """Whether an extension wrote it: its lists are then not trusted."""
    from_id: str | None = None
    """Of the summary of a branch: the entry at which that branch was left."""
    first_kept_id: str | None = None
    """Of a compaction: the first entry before it that is still sent."""
    tokens_before: int | None = None
    """Of a compaction: the context before it, as its writer counted it."""


class SummaryFormat(Protocol):
    """The summaries that an agent honours. Messages are in the form of `Format.message_json`."""

    @property
    def honours_compactions(self) -> bool:
        """Whether a `compaction_line` replaces anything in its context; a `branch_summary_line` always adds to it."""
        ...

    def conversation(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Messages as text, so that a model summarises the conversation instead of continuing it."""
        ...

    def files(self, messages: Sequence[Mapping[str, Any]], earlier: Sequence[Mapping[str, Any]] = ()) -> FileLists:
        """The files that calls in these messages read and modified, and those of earlier summaries.

        `earlier` are recorded objects of summaries; the lists of those that an extension wrote do not count.
        """
        ...

    def files_text(self, files: FileLists) -> str:
        """The lists as they end a summary, after a blank line; empty if there are no files."""
        ...

    def split_turn_text(self, history: str, prefix: str) -> str:
        """The summary of a part that ends within a turn, made of those of the history and of the turn's beginning."""
        ...

    def branch_summary_line(
        self,
        entry_id: str,
        parent_id: str | None,
        moment: datetime,
        *,
        from_id: str,
        summary: str,
        files: FileLists,
        from_hook: bool = False,
    ) -> bytes:
        """The line of a summary of the branch that was left at `from_id`, without its newline. The agent continues
        after it; None as the parent makes it a root."""
        ...

    def compaction_line(
        self,
        entry_id: str,
        parent_id: str,
        moment: datetime,
        *,
        summary: str,
        first_kept_id: str,
        tokens_before: int,
        files: FileLists,
        from_hook: bool = False,
    ) -> bytes:
        """The line of a summary that replaces what precedes `first_kept_id`, without its newline."""
        ...

    def recorded_summary(self, line: bytes) -> RecordedSummary | None:
        """What the line of a summary of either kind has; None if it is another line."""
        ...

    def recorded_files(self, line: bytes) -> FileLists | None:
        """The lists in the details of a recorded summary; None if it has none."""
        ...
