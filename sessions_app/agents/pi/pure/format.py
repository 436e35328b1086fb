"""PURE: the format of pi, and everything in it that Atomic shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sessions_app.agents.pure.format import Format, Generation, SummaryFormat
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Entry

from .diagnosis import PI_0_87, PI_BEFORE_0_87, examine
from .parser import CURRENT_VERSION, KEY, MOVE, UNDO, SessionParser, parse_line, recorded_prices
from .reader import ContextRules, OlderPiReader, PiReader, message_json
from .repair import migrate, repair
from .writers import ContextEditWriter, ForkWriter, PiSummaryFormat, branch_copy, new_line, restore_lines

_READER: Final = PiReader()
_OLDER_READER: Final = OlderPiReader()


class PiFormat(Format):
    """pi, and everything that Atomic shares with it."""

    name = KEY
    label = "pi"
    parser = SessionParser
    branch_copy = staticmethod(branch_copy)
    examine = staticmethod(examine)
    migrate = staticmethod(migrate)
    repair = staticmethod(repair)
    recorded_prices = staticmethod(recorded_prices)
    current_version = CURRENT_VERSION
    summary_format: SummaryFormat | None = PiSummaryFormat(honours_compactions=True)
    generations: Sequence[Generation] = (
        Generation(
            PI_0_87,
            _READER,
            ContextRules(_READER),
            (ContextEditWriter(_READER), ForkWriter(_READER, ends_with_edit=True)),
            restore_lines=restore_lines,
            since=(0, 87),
        ),
        Generation(
            PI_BEFORE_0_87,
            _OLDER_READER,
            ContextRules(_OLDER_READER),
            (ForkWriter(_OLDER_READER, ends_with_edit=False),),
        ),
    )

    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        return message_json(message, parse_line(line), parse_line(edit_line) if edit_line is not None else None)

    def sent_messages(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterator[Mapping[str, Any]]:
        for message in context.messages:
            if message.sent:
                edit_line = line(message.edit) if message.edit is not None else None
                yield self.message_json(message, line(message.entry), edit_line)

    def leaf_line(self, entry_id: str, parent_id: str | None, moment: datetime, *, undoes: bool = False) -> bytes:
        return new_line("custom", entry_id, parent_id, moment, customType=UNDO if undoes else MOVE)

    def label_line(self, entry_id: str, parent_id: str, moment: datetime, target_id: str, label: str) -> bytes:
        """pi writes a removal without the key `label`."""
        text = {"label": label} if label else {}
        return new_line("label", entry_id, parent_id, moment, targetId=target_id, **text)

    @property
    def missing_forms(self) -> Mapping[str, str]:
        return {}
