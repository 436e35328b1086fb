"""PURE: the passages of an entry, as they are searched: its text, divided by origin.

    entry ─passages─▶ (reply, "I read …"), (call, "read src/main.py") ─index_text─▶ words of the full-text index

An image, encoded data and reasoning that only its provider can read have no words and are left out.

The state of a passage is that of its entry on the branch that the agent continues.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from .context import ActiveContext
from .entries import BlockType, Entry, EntryKind, Role, Texts
from .jsjson import well_formed
from .tree import SessionTree

MAX_CHARACTERS: Final = 1_000_000
"""The maximum number of characters of a passage that are indexed."""
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/]{65,}={0,2}")
"""Encoded data: runs longer than a SHA-256. If it were indexed, each line of an encoded file would be a separate
word."""
_AS_RUN: Final = bytes(ord("x" if re.match(r"[A-Za-z0-9+/]", chr(code)) else " ") for code in range(256))
_RUN: Final = b"x" * 65
"""The result of `_AS_RUN` for the shortest `_ENCODED`. Searching for it first is a hundred times faster, and few texts
have one."""
_SLASHES_OF_PATHS: Final = 16
"""The maximum average distance between slashes in a path, in characters; encoded data has one in 64."""
CJK: Final = re.compile(
    "[\u3005\u3040-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003134f]+"
)
"""Runs of Chinese characters and kana, which are written without spaces between words."""


class PassageKind(IntEnum):
    """The origin of a passage, the most informative first. The index stores the numbers, as three bits."""

    SAID = 1
    """A user's message."""
    REPLY = 2
    """The assistant's text."""
    SUMMARY = 3
    """A summary of a compaction or a branch."""
    THINKING = 4
    CALL = 5
    RESULT = 6
    """A tool's result, or a command that the user ran, with its output."""
    ADDED = 7
    """Context that the agent or an extension added: instructions, notes, the new content of an edit."""


class EntryPassage(NamedTuple):
    """The text of one kind in an entry."""

    kind: PassageKind
    text: str


_OF_ROLES: Final = {
    Role.USER: PassageKind.SAID,
    Role.TOOL_RESULT: PassageKind.RESULT,
    Role.COMMAND: PassageKind.RESULT,
    Role.BRANCH_SUMMARY: PassageKind.SUMMARY,
    Role.COMPACTION_SUMMARY: PassageKind.SUMMARY,
}
_OF_ASSISTANT_BLOCKS: Final = {
    BlockType.TEXT: PassageKind.REPLY,
    BlockType.THINKING: PassageKind.THINKING,
    BlockType.TOOL_CALL: PassageKind.CALL,
}
_CALL_ID: Final = re.compile(rf"{BlockType.TOOL_CALL} \S* ")
_ESCAPE: Final = re.compile(r"""\\(["\\/nrt])""")
_ESCAPED: Final = {'"': '"', "\\": "\\", "/": "/", "n": "\n", "r": "\r", "t": "\t"}
_WITHOUT_WORDS: Final = frozenset({BlockType.IMAGE, BlockType.REDACTED_THINKING})


def passages(entry: Entry, texts: Texts) -> Iterator[EntryPassage]:
    """The passages of an entry that have text, at most one of each kind."""
    if not entry.has_text:
        return
    if texts.whole is not None or entry.blocks is None:
        if texts.whole:
            yield EntryPassage(_kind_of(entry), texts.whole)
        return
    found: dict[PassageKind, list[str]] = {}
    for block in entry.blocks:
        text = "" if block.type in _WITHOUT_WORDS else texts.block(block.index)
        if block.type == BlockType.TOOL_CALL:
            # The tool and its arguments, without the id of the call, and with the line breaks that JSON escapes.
            text = _ESCAPE.sub(lambda found: _ESCAPED[found[1]], _CALL_ID.sub("", text, count=1))
        if text:
            found.setdefault(_kind_of(entry, block.type), []).append(text)
    for kind, parts in found.items():
        yield EntryPassage(kind, "\n".join(parts))


def _kind_of(entry: Entry, block_type: str = BlockType.TEXT) -> PassageKind:
    if entry.kind is EntryKind.SUMMARY:
        return PassageKind.SUMMARY
    if entry.role == Role.ASSISTANT:
        return _OF_ASSISTANT_BLOCKS.get(block_type, PassageKind.REPLY)
    return _OF_ROLES.get(entry.role, PassageKind.ADDED)


def index_text(text: str) -> str:
    """The words of a passage for the index: the tokenizer separates words at everything but letters and digits.

    Chinese and kana become pairs of neighbouring characters, and the last character of a run alone.
    """
    text = text[:MAX_CHARACTERS].replace("\0", " ")
    if _RUN in text.encode("ascii", "replace").translate(_AS_RUN):
        text = _ENCODED.sub(_without_data, text)
    text = well_formed(text)
    if text.isascii():
        return text
    return CJK.sub(lambda run: f" {' '.join(run[0][at : at + 2] for at in range(len(run[0])))} ", text)


def _without_data(run: re.Match[str]) -> str:
    is_path = run[0].count("/") * _SLASHES_OF_PATHS > len(run[0])
    return run[0] if is_path else " "


class PassageState(IntEnum):
    """Whether the model still sees an entry. The index stores the numbers."""

    SEEN = 1
    STRUCK = 2
    """A deletion or an edit removed it."""
    SUMMARISED = 3
    """It lies before a compaction that did not keep it."""
    ELSEWHERE = 4
    """It is on another branch."""


def states_of(tree: SessionTree, branch: Iterable[Entry], context: ActiveContext) -> Mapping[str, PassageState]:
    """The state of each entry of a session by id, given the branch of its leaf and the context rebuilt from it."""
    states = dict.fromkeys((entry.id for entry in tree.entries), PassageState.ELSEWHERE)
    for entry in branch:
        states[entry.id] = PassageState.STRUCK if entry.id in context.removed else PassageState.SUMMARISED
    for message in context.messages:
        for seen in (message.entry, message.edit):
            if seen is not None:
                states[seen.id] = PassageState.SEEN
    return states
