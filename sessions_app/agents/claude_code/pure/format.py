"""PURE: the format of Claude Code."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sessions_app.agents.pure.formats import Format, Generation
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.diagnosis import Severity
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.jsjson import parse
from sessions_app.sessionlog.session import DamageKind, ParserState, RecordedVersion

from . import sent
from .parser import CLIENT, KEY, SINCE, ClaudeCodeParser
from .reader import ClaudeCodeReader, ClaudeCodeRules, ClaudeCodeTree, OlderClaudeCodeReader
from .writers import BoundaryWriter, ClaudeForkWriter, refused_writers, restore_lines_by

_READER: Final = ClaudeCodeReader()
_OLDER_READER: Final = OlderClaudeCodeReader()


class ClaudeCodeFormat(Format):
    name = KEY
    label = "Claude Code"
    parser = ClaudeCodeParser
    recorded_requests = staticmethod(sent.ledger_result)
    refused_writers = staticmethod(refused_writers)
    reworded_entries = staticmethod(sent.reworded_entries)
    sent_messages = staticmethod(sent.sent_messages)
    generations: Sequence[Generation] = (
        Generation(
            "Claude Code 2.1.143 and newer",
            _READER,
            ClaudeCodeRules(_READER),
            (BoundaryWriter(_READER), ClaudeForkWriter(_READER)),
            restore_lines=restore_lines_by(_READER),
            can_move_leaf=False,
            turns=sent.ClaudeCodeTurns(_READER),
            since=SINCE,
        ),
        Generation(
            "Claude Code before 2.1.143",
            _OLDER_READER,
            ClaudeCodeRules(_OLDER_READER),
            (ClaudeForkWriter(_OLDER_READER),),
            can_move_leaf=False,
            turns=sent.ClaudeCodeTurns(_OLDER_READER),
        ),
    )

    def tree(self, entries: Sequence[Entry]) -> ClaudeCodeTree:
        return ClaudeCodeTree(entries)

    def new_entry_id(self) -> str:
        return str(uuid.uuid4())

    def consequence(self, kind: DamageKind, generation: Generation) -> tuple[Severity, str]:
        if kind is DamageKind.NO_HEADER and generation.since:
            return Severity.NONE, "continues the session"
        if kind is DamageKind.MORE_ON_LINE and not generation.since:
            return Severity.LOSS, "skips the line"
        return super().consequence(kind, generation)

    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        return {"role": message.role, "content": sent.content_of(message, parse(line))}

    def recorded_version(self, state: ParserState) -> RecordedVersion | None:
        """The version of the client that wrote the last line; None if it is unknown."""
        numbers = tuple(state.extra.get(CLIENT, ()))
        if not numbers:
            return None
        return RecordedVersion(numbers, f"{self.label} {'.'.join(map(str, numbers))} continued it last")
