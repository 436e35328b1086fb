"""PURE: the format of OpenCode."""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sessions_app.agents.pure.format import Format, Generation
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.session import ParserState

from .lines import INFO
from .parser import CURRENT_VERSION, OpenCodeParser
from .reader import OpenCodeReader, OpenCodeRules, message_json, sent_messages
from .writers import DeleteWriter, PruneWriter, RowForkWriter

_READER: Final = OpenCodeReader()
_NO_ROWS: Final = (
    "This is an export, not a session in OpenCode's database: nothing can be deleted in it. The writer fork makes a "
    "new export without what is deleted."
)
_ID_CHARACTERS: Final = string.digits + string.ascii_letters
_ID_TIME: Final = 1 << 48
_IDS_IN_A_MILLISECOND: Final = 1 << 12


class OpenCodeFormat(Format):
    """OpenCode 1 since 1.1."""

    name = "opencode"
    label = "OpenCode"
    parser = OpenCodeParser
    sent_messages = staticmethod(sent_messages)
    current_version = CURRENT_VERSION
    generations: Sequence[Generation] = (
        Generation(
            "OpenCode 1.1 and newer, before 2",
            _READER,
            OpenCodeRules(_READER),
            (DeleteWriter(), PruneWriter(), RowForkWriter()),
            can_move_leaf=False,
        ),
    )

    def new_entry_id(self) -> str:
        """The part of an id after its kind: what is made later is greater."""
        moment = (time.time_ns() * _IDS_IN_A_MILLISECOND // 1_000_000) % _ID_TIME
        rest = "".join(secrets.choice(_ID_CHARACTERS) for _ in range(14))
        return f"{moment:012x}{rest}"

    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        del edit_line
        return message_json(message, line)

    def refused_writers(self, state: ParserState) -> Mapping[str, str]:
        """An export has no rows."""
        writers = self.generations[0].writers
        return {writer.name: _NO_ROWS for writer in writers if writer.appends and INFO in state.extra}
