"""The writer that appends a `compacted` line: the items that are left of the conversation, with their recorded bytes.

Nothing but the deleted items changes. The context that Codex has added itself stays in its place, and if Codex still
relies on it (see `lines.baseline_lines`), the lines that say so are repeated: otherwise it would add the same context
a second time. So the request begins with the same bytes up to the first deleted item, and a provider's cache stays
valid up to there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sessions_app.agents.changes import Append, ContextWriter, WriteFacts
from sessions_app.agents.pure.contexts import Reader
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.targets import blocks_by_entry

from .lines import KeptItem, baseline_lines, compacted_payload, kept_item, new_line, next_window, recorded_payload
from .parser import names_of

BlocksByEntry = Mapping[str, frozenset[int] | None]


class CompactedWriter(ContextWriter):
    """Appends one line with the survivors, and the baseline of the added context."""

    name: Final = "compacted"
    appends: Final = True
    effect: Final = (
        "Appends a compaction in Codex's own form to the session: the list of the items that are left, word for word. "
        "The deleted items stay in the file."
    )
    undo: Final = "Another such line with the fuller list brings items back, all or single ones, at any time."

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> Append:
        messages = self._reader.rebuild(branch).messages
        provenance = {"backup": str(facts.backup), "stats": deletion.stats.to_json()}
        kept = surviving_items(messages, blocks_by_entry(deletion.targets), facts)
        return Append(compacted_lines(branch, kept, provenance, facts, _next_ordinal(facts)))


def surviving_items(messages: Sequence[Message], deleted: BlocksByEntry, facts: WriteFacts) -> list[KeptItem]:
    """The items of the messages that a deletion leaves."""
    kept = []
    for message in messages:
        blocks = deleted.get(message.entry.id, frozenset())
        if blocks is not None:
            kept.append(KeptItem(message.entry.id, kept_item(message, blocks, facts.line)))
    return kept


def compacted_lines(
    branch: Sequence[Entry],
    kept: Sequence[KeptItem],
    provenance: Mapping[str, Any],
    facts: WriteFacts,
    ordinal: int | None,
    thread_window: str = "",
) -> tuple[bytes, ...]:
    """The lines that make these items the conversation, the first one with this ordinal; None if lines have none.

    `thread_window` is the first window of a new thread, as its header has it.
    """
    window = next_window(branch, facts.line, facts.session_id, thread_window)
    payloads = [("compacted", compacted_payload(kept, window, provenance))]
    payloads += baseline_lines(branch, facts.line)
    return tuple(
        new_line(kind, facts.written_at, None if ordinal is None else ordinal + number, payload)
        for number, (kind, payload) in enumerate(payloads)
    )


def _next_ordinal(facts: WriteFacts) -> int | None:
    """That of the next line of the session; None if its lines have none."""
    last: int | None = facts.state.extra.get("ordinal")
    return None if last is None else last + 1


class FullerList:
    """Brings deleted items back by a `compacted` line in which they have their places again."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __call__(
        self, branch: Sequence[Entry], messages: Sequence[Message], deleted: BlocksByEntry, facts: WriteFacts
    ) -> tuple[bytes, ...]:
        """`messages` are those that come back, `deleted` the blocks of them that stay deleted."""
        back = {message.entry.id for message in messages}
        origins = _origins(branch, facts)
        places = {entry.id: place for place, entry in enumerate(branch)}

        def place(message: Message) -> int:
            return places[origins.get(message.entry.id, message.entry.id)]

        now = self._reader.rebuild(branch).messages
        others = [one for one in now if origins.get(one.entry.id, one.entry.id) not in back]
        merged = _merged(others, messages, place)
        kept = surviving_items(merged, deleted, facts)
        return compacted_lines(branch, kept, {"undo": True}, facts, _next_ordinal(facts))


def _origins(branch: Sequence[Entry], facts: WriteFacts) -> dict[str, str]:
    """The entries that lost blocks, by the entries that stand for them since."""
    known = {entry.id for entry in branch}
    origins: dict[str, str] = {}
    for entry in branch:
        if entry.kind is not EntryKind.BOUNDARY or entry.type != "compacted":
            continue
        for place, name in enumerate(names_of(recorded_payload(facts.line(entry))), 1):
            part = f"{entry.id}.{place}"
            if part in known and isinstance(name, str) and name in known:
                origins[part] = origins.get(name, name)
    return origins


def _merged(others: Sequence[Message], back: Sequence[Message], place: Callable[[Message], int]) -> list[Message]:
    """Both lists in the order of recording; the other items keep the order that they have."""
    waiting = list(back)
    merged: list[Message] = []
    for message in others:
        while waiting and place(waiting[0]) < place(message):
            merged.append(waiting.pop(0))
        merged.append(message)
    return [*merged, *waiting]
