"""What tells how the text of an entry, or of one of its blocks, is rendered."""

from __future__ import annotations

from collections.abc import Mapping

from sessions_app.sessionlog.entries import Block, BlockType, Entry, Role

from .entry_notes import WORDS
from .shown_text import TextSource
from .tool_call_text import call_parts, call_words
from .tool_changes import changes_of


def kind_of(entry: Entry, block: Block | None) -> str:
    """Whose text it is: `user`, `text`, `thinking`, `call`, or `out` for the output of a program."""
    if entry.role == Role.ASSISTANT and block is not None:
        if block.is_thinking:
            return "thinking"
        return "call" if block.type == BlockType.TOOL_CALL else "text"
    if entry.role in (Role.ASSISTANT, Role.BRANCH_SUMMARY, Role.COMPACTION_SUMMARY):
        return "text"
    return "user" if entry.role == Role.USER else "out"


def source_of_text(
    entry: Entry, block: Block | None, text: str, project: str, languages: Mapping[str, str]
) -> tuple[TextSource, tuple[str, str] | None]:
    """A text with what tells how it is rendered; and of a call, its tool and its arguments in short."""
    if block is None or block.type != BlockType.TOOL_CALL:
        # A subagent reports in the words of a model.
        kind = "text" if entry.subagent and not entry.failed else kind_of(entry, block)
        return TextSource(kind, text, language=languages.get(entry.result_for or "", "")), None
    tool, arguments = call_parts(text, block.call_id or "")
    changes = changes_of(tool, arguments)
    words = call_words(text, block.call_id or "", project, only_file=bool(changes))
    return TextSource("call", arguments, changes), (tool[:WORDS], words[1])
