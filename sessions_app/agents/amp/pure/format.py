"""PURE: the format of Amp's threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sessions_app.agents.pi.pure.reader import ContextRules
from sessions_app.agents.pure.format import Format, Generation
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Entry, Role, Texts
from sessions_app.sessionlog.jsjson import parse
from sessions_app.sessionlog.session import Damage, ParserState

from .parser import CURRENT_VERSION, AmpParser, reparse_entry, without_results
from .reader import AmpReader, HandoffWriter

_READER: Final = AmpReader()


class AmpFormat(Format):
    """Amp until its threads moved to its servers."""

    name = "amp"
    label = "Amp"
    current_version = CURRENT_VERSION
    generations: Sequence[Generation] = (
        Generation("Amp", _READER, ContextRules(_READER), (HandoffWriter(),), can_move_leaf=False),
    )

    def parser(self, state: ParserState, damage: list[Damage]) -> AmpParser:
        return AmpParser(state, damage)

    def sent_messages(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterator[Mapping[str, Any]]:
        """What was recorded: what a thread sends is not known."""
        for message in context.messages:
            yield self.message_json(message, line(message.entry), None)

    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        del edit_line
        found = parse(line)
        if message.role == Role.TOOL_RESULT:
            return {"role": "user", "content": [found]}
        content = found["data"].get("content")
        return {
            "role": message.role,
            "content": without_results(content) if isinstance(content, list) else content,
        }

    def reparse_entry(self, raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
        del version
        return reparse_entry(raw, place)
