"""PURE: the subjects that the draft of a summary keeps from the messages it would replace, as `mentions` measures them.

replaced ─statements─▶ subjects ◀─mentions─ the draft, and the messages beside it

The subjects and the kept messages are read only once; a draft is judged again whenever it is edited.
`summary_loss.loss_of` takes a draft as a `Replacement`, and compares it with a verbatim plan of the same size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Entry, EntryKind, Role, Texts, tokens_of
from sessions_app.sessionlog.jsjson import utf16_length

from .mentions import Mentions, Statement, Subjects, statements_of, subjects_of
from .summary_loss import Replacement, either, entries_among, said, without
from .summary_ranges import BranchLeft, SummaryRange

DRAFT_ID: Final = "draft"
"""The id of the entry that a draft would be."""


@dataclass(frozen=True, slots=True)
class DraftJudgement:
    """The subjects of the replaced messages, and those still mentioned."""

    subjects: Subjects
    still: Subjects
    """The subjects that the draft mentions."""
    in_context: Subjects
    """The subjects that the draft or the messages beside it mention."""

    @property
    def lost(self) -> Subjects:
        """The subjects that would no longer be mentioned."""
        return without(self.subjects, self.in_context)


class DraftCheck:
    """Judges drafts of one summary.

    `replaced` are the messages that it would replace, `kept` those that stay; `texts` are by the id of each message's
    source. A relative path is resolved from `project`, the session's directory.
    """

    def __init__(
        self,
        replaced: Iterable[Message],
        kept: Iterable[Message],
        texts: Mapping[str, Texts],
        project: str = "",
    ) -> None:
        self.subjects = subjects_of(statements_of(replaced, texts, project))
        self._beside = Mentions(statements_of(kept, texts, project)).of(self.subjects)

    def judge(self, draft: str) -> DraftJudgement:
        """The subjects that a draft, with its lists of files, mentions."""
        said = Statement("", Role.COMPACTION_SUMMARY, draft)
        still = Mentions([said]).of(self.subjects)
        return DraftJudgement(self.subjects, still, either(self.subjects, still, self._beside))

    @classmethod
    def of(cls, replacement: Replacement, texts: Mapping[str, Texts], project: str = "") -> DraftCheck:
        """The check of a draft that is a replacement; `texts` are those of its sources, with or without the draft."""
        return cls(replacement.replaced, replacement.kept, texts, project)


def drafted_compaction(branch: Sequence[Entry], context: ActiveContext, found: SummaryRange, draft: str) -> Replacement:
    """A draft of a compaction as if it were written at the end of a branch, whose context is `context`."""
    gone = {entry.id for entry in found.summarised}
    if found.previous_summary is not None:
        gone.add(found.previous_summary.id)
    conversation = said(context.messages)
    replaced = tuple(message for message in conversation if message.entry.id in gone)
    kept = tuple(message for message in conversation if message.entry.id not in gone)
    entries = entries_among(branch, replaced, kept)
    summary = _summary(draft, EntryKind.SUMMARY, Role.COMPACTION_SUMMARY, branch[-1].id)
    return _replacement(summary, context, branch[-1].id, replaced, kept, entries)


def drafted_branch_summary(
    left: BranchLeft, before: ActiveContext, after: ActiveContext, new_leaf_id: str | None, draft: str
) -> Replacement:
    """A draft of the summary of a branch that is left. `before` is the context at the old leaf, `after` the one at the
    new leaf, without the summary."""
    left_ids = {entry.id for entry in left.entries}
    replaced = said(message for message in before.messages if message.entry.id in left_ids)
    kept = said(after.messages)
    entries = entries_among(left.entries, replaced, kept)
    summary = _summary(draft, EntryKind.MESSAGE, Role.BRANCH_SUMMARY, new_leaf_id)
    return _replacement(summary, before, left.entries[-1].id, replaced, kept, entries)


def with_draft(replacement: Replacement, draft: str) -> Replacement:
    """The same replacement with another text of the draft."""
    old = replacement.summary
    tokens = tokens_of(utf16_length(draft))
    entry = msgspec.structs.replace(old.entry, tokens=tokens, empty=not draft)
    summary = msgspec.structs.replace(old, entry=entry, tokens=tokens)
    return replace(replacement, summary=summary, tokens_after=replacement.tokens_after - old.tokens + tokens)


def draft_texts(draft: str) -> dict[str, Texts]:
    """The text of a draft together with those of recorded entries."""
    return {DRAFT_ID: Texts(whole=draft, blocks=())}


def _summary(draft: str, kind: EntryKind, role: str, parent_id: str | None) -> Message:
    tokens = tokens_of(utf16_length(draft))
    entry = Entry(0, 0, 0, DRAFT_ID, parent_id, DRAFT_ID, kind, role=role, tokens=tokens, empty=not draft)
    return Message(entry, role, None, tokens)


def _replacement(
    summary: Message,
    before: ActiveContext,
    before_id: str,
    replaced: tuple[Message, ...],
    kept: tuple[Message, ...],
    entries: int,
) -> Replacement:
    after = summary.tokens + sum(message.tokens for message in kept)
    return Replacement(summary, before_id, before, replaced, kept, entries, after)
