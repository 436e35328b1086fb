"""What pi's model sees: the latest `compaction`'s summary, what it kept, and later entries; then `context_edit`s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sessions_app.sessionlog.context import ActiveContext, Message, keep, newest_of
from sessions_app.sessionlog.controls import EditControl, SummaryControl
from sessions_app.sessionlog.entries import Entry, EntryKind, Role, tokens_of

from .records import describe_content
from .sending import SENDING


class PiReader:
    """pi 0.87 and later. Earlier versions ignore `context_edit`."""

    name: Final = "pi"
    honours: Final = frozenset({EntryKind.SUMMARY, EntryKind.EDIT})

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        selected = _select(branch)
        edits = {
            entry.control.target_id: entry.control
            for entry in selected
            if isinstance(entry.control, EditControl) and entry.control.target_id is not None
        }
        messages = []
        for entry in selected:
            message = _message(entry, edits.get(entry.id))
            if message is not None:
                messages.append(message)
        newest = newest_of(branch, self.honours)
        here = {entry.id for entry in branch}
        open_ended = any(target not in here for target in edits)
        return ActiveContext(self.name, tuple(messages), newest, open_ended, SENDING)


def _select(branch: Sequence[Entry]) -> list[Entry]:
    for at in range(len(branch) - 1, -1, -1):
        control = branch[at].control
        if isinstance(control, SummaryControl):
            break
    else:
        return list(branch)
    start = next((i for i in range(at) if branch[i].id == control.first_kept_id), at)
    kept = [
        entry
        for entry in branch[start:at]
        if entry.kind is not EntryKind.SUMMARY and entry.role != Role.SYSTEM
    ]
    return [branch[at], *kept, *branch[at + 1 :]]


def _message(entry: Entry, edit: EditControl | None) -> Message | None:
    if entry.kind is not EntryKind.SUMMARY and (not entry.is_message or entry.empty):
        return None
    if edit is None:
        return keep(entry)
    if not isinstance(edit.replacement, Mapping):
        return None
    content = edit.replacement.get("content")
    if isinstance(content, str) and entry.role in (Role.ASSISTANT, Role.TOOL_RESULT):
        content = [{"type": "text", "text": content}]
    blocks, texts, units = describe_content(content, entry.role)
    return Message(entry, entry.role, blocks, tokens_of(units), replacement=texts)
