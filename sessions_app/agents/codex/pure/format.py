"""PURE: the format of Codex."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sessions_app.agents.pure.format import Format, Generation
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.diagnosis import Severity
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.session import Damage, DamageKind, ParserState, RecordedVersion
from sessions_app.sessionlog.tree import SessionTree

from .parser import CLIENT, IS_NUMBERED, IS_PAGINATED, KEY, RolloutParser, thread_tree
from .reader import CodexReader, CodexRules, item_json, sent_items
from .writers import CompactedWriter, FullerList, ThreadForkWriter

READER: Final = CodexReader("codex", is_older=False)
OLDER_READER: Final = CodexReader("codex-0.104", is_older=True)


class CodexFormat(Format):
    """Codex CLI."""

    name = KEY
    label = "Codex"
    parser = RolloutParser
    generations: Sequence[Generation] = (
        Generation(
            "Codex 0.169 and newer",
            READER,
            CodexRules(READER),
            (CompactedWriter(READER), ThreadForkWriter(READER)),
            restore_lines=FullerList(READER),
            can_move_leaf=False,
            since=(0, 169),
        ),
        Generation(
            "Codex before 0.169",
            OLDER_READER,
            CodexRules(OLDER_READER),
            (CompactedWriter(OLDER_READER), ThreadForkWriter(OLDER_READER, knows_bases=False)),
            restore_lines=FullerList(OLDER_READER),
            can_move_leaf=False,
        ),
    )

    def tree(self, entries: Sequence[Entry]) -> SessionTree:
        return thread_tree(entries)

    def obstacles(self, state: ParserState) -> Iterator[Damage]:
        yield from super().obstacles(state)
        if state.extra.get(IS_PAGINATED) and not state.extra.get(IS_NUMBERED, True):
            number, offset = state.next_number - 1, state.next_offset
            yield Damage(DamageKind.NO_ORDINAL, number, offset, 0, "the last line has no ordinal, as this thread needs")

    def consequence(self, kind: DamageKind, generation: Generation) -> tuple[Severity, str]:
        if kind is DamageKind.NO_ORDINAL and not generation.since:
            return Severity.NONE, "needs no ordinals"
        if kind in (DamageKind.NO_ORDINAL, DamageKind.NO_HEADER):
            return Severity.FATAL, "refuses to resume the thread"
        return super().consequence(kind, generation)

    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        del edit_line
        return item_json(message, line)

    def sent_messages(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterable[Mapping[str, Any]]:
        return sent_items(context, line, with_ids=context.reader == READER.name)

    def recorded_version(self, state: ParserState) -> RecordedVersion | None:
        """That of the client that began the file: later lines record none."""
        numbers = tuple(state.extra.get(CLIENT, ()))
        if not any(numbers):  # a client that was built from source calls itself 0.0.0
            return None
        return RecordedVersion(numbers, f"{self.label} {'.'.join(map(str, numbers))} began it")
