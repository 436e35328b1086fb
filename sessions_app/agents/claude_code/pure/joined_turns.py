"""What moves if entries are deleted: Claude Code sends all that stands between two replies as one message.

    results and attachments, then texts of the user, then attachments of the system        rule 7 of `sent`

    U1 | reply | A2 U2    a text, a reply, a file that was read again, a text; without the reply: A2 U1 U2

So a plan that deletes every reply between two turns moves what it keeps of them. A reply of which nothing is sent
(rules 8 and 9) parts no turns; one of white space does here, because digests do not show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sessions_app.agents.pure.contexts import Moved, SentPiece
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.jsjson import parse

from .reader import ClaudeCodeReader
from .sent import VersionBehaviour
from .sent_lines import OLDER_MODEL, Author, attachment_line

_NOT_SAID: Final = frozenset({Role.TOOL_RESULT, Role.CUSTOM})
"""The roles of what comes before the texts of a turn, but for attachments of the system."""


@dataclass(slots=True)
class _Turn:
    """What is sent as one message: a reply, or what stands between two."""

    is_reply: bool
    pieces: list[SentPiece] = field(default_factory=list)

    @property
    def is_prompt(self) -> bool:
        """Whether the user said something, and no tool did."""
        roles = {piece.role for piece in self.pieces}
        return not self.is_reply and Role.TOOL_RESULT not in roles and bool(roles - _NOT_SAID)


@dataclass(frozen=True, slots=True)
class ClaudeCodeTurns:
    """The turns of a group of versions."""

    reader: ClaudeCodeReader
    behaviour: VersionBehaviour

    def arranged(self, messages: Sequence[Message], *, is_new: bool) -> list[Message]:
        return self.reader.arranged(messages, is_new=is_new)

    def moved(
        self, before: Sequence[SentPiece], after: Sequence[SentPiece], line: Callable[[str], bytes]
    ) -> Sequence[Moved]:
        old, new = _places(before), _places(after)
        constituents: dict[int, set[int]] = {}
        for entry_id in new.keys() & old.keys():
            constituents.setdefault(new[entry_id], set()).add(old[entry_id])
        is_older = self._is_older_model(before, line) if any(len(one) > 1 for one in constituents.values()) else False

        def rank(piece: SentPiece) -> int:
            if piece.role != Role.CUSTOM:
                return int(piece.role not in (Role.TOOL_RESULT, Role.ASSISTANT))
            is_joined = len(constituents[new[piece.entry_id]]) > 1
            return 2 if is_joined and not is_older and self._is_of_system(piece, line) else 0

        ranked = [(piece.entry_id, rank(piece)) for piece in before if piece.entry_id in old and piece.entry_id in new]
        was = sorted(ranked, key=lambda one: (old[one[0]], one[1]))
        will_be = sorted(ranked, key=lambda one: (new[one[0]], one[1]))
        return _overtaking([entry_id for entry_id, _ in was], [entry_id for entry_id, _ in will_be])

    def _is_of_system(self, piece: SentPiece, line: Callable[[str], bytes]) -> bool:
        found = attachment_line(parse(line(piece.entry_id)), reads_rendered=self.behaviour.reads_rendered)
        return found.author is Author.SYSTEM

    def _is_older_model(self, pieces: Sequence[SentPiece], line: Callable[[str], bytes]) -> bool:
        """Whether attachments of the system are sent as the user's."""
        last = next((piece for piece in reversed(pieces) if piece.role == Role.ASSISTANT), None)
        model = parse(line(last.entry_id))["message"].get("model") if last is not None else None
        return isinstance(model, str) and OLDER_MODEL.match(model) is not None


def _places(pieces: Sequence[SentPiece]) -> dict[str, int]:
    """For each entry that is sent, by id, which message it is sent in: rule 7, as in `sent`."""
    answered = {piece.result_for for piece in pieces if piece.role == Role.TOOL_RESULT}
    spoken = {piece.reply for piece in pieces if piece.role == Role.ASSISTANT and not _only_thinks(piece)}
    turns: list[_Turn] = []
    replies: dict[str, _Turn] = {}
    for piece in pieces:
        last = turns[-1] if turns else None
        if piece.role != Role.ASSISTANT:
            if last is None or last.is_reply:
                turns.append(_Turn(is_reply=False))
            turns[-1].pieces.append(piece)
            continue
        if (piece.call_ids and answered.isdisjoint(piece.call_ids)) or (
            _only_thinks(piece) and piece.reply not in spoken
        ):
            continue
        if last is not None and last.is_prompt:
            replies.clear()
        if piece.reply not in replies:
            turns.append(_Turn(is_reply=True))
            replies[piece.reply] = turns[-1]
        replies[piece.reply].pieces.append(piece)
        if not piece.reply:
            del replies[piece.reply]
    return {piece.entry_id: number for number, turn in enumerate(turns) for piece in turn.pieces}


def _only_thinks(piece: SentPiece) -> bool:
    return bool(piece.blocks) and all(block.is_thinking for block in piece.blocks)


def _overtaking(was: Sequence[str], will_be: Iterable[str]) -> list[Moved]:
    """Those that are sent before others that they followed, each with the first of these, in their new order."""
    place = {entry_id: number for number, entry_id in enumerate(was)}
    first = len(was)
    found = []
    for entry_id in reversed(list(will_be)):
        if first < place[entry_id]:
            found.append(Moved(entry_id, was[first]))
        first = min(first, place[entry_id])
    return found[::-1]
