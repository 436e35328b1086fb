"""The source and the effect of a summary: the branch that a move leaves, or the beginning of a context.

    session now ─▶ SummaryTask ─parts─▶ a model or a human ─text─▶ SummaryTask.change ─▶ append_entries

Nothing is written here. A text is generated or written by a human, and never verbatim: it is shown as a draft, and only
the confirmed text is appended. The lists of files come from the calls, without a model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from compaction_app.changes.change import lines_of
from compaction_app.changes.compaction import require_writable
from compaction_app.changes.entries import NOT_APPENDED, EntryChange, MakeChange, destination_of
from compaction_app.changes.proof import ReadLine
from compaction_app.core import summary_loss, summary_ranges
from compaction_app.core.summary_prompt import SummaryKind
from compaction_app.hooks import SummaryPreparation
from compaction_app.models import AuditEntry
from compaction_app.planning.hook_runner import TreeMove
from compaction_app.planning.model_request import SummaryPart
from sessions_app.agents.base import Agent
from sessions_app.agents.pure.formats import FileLists, SummaryFormat, WriteFacts
from sessions_app.agents.reading import Reading
from sessions_app.document.document import Document
from sessions_app.sessionlog.context import Message, model_of
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.sessionlog.text import plural, printable

_SUMMARIES: Final = frozenset({Role.BRANCH_SUMMARY, Role.COMPACTION_SUMMARY})


@dataclass(frozen=True)
class SummaryTask:
    """One summary to be written."""

    present: Document
    format: SummaryFormat
    parts: tuple[SummaryPart, ...]
    """The requests to a model: one for each part."""
    files: FileLists
    replaced: tuple[Entry, ...]
    """The entries that the agent will no longer send, oldest first."""
    previous: str
    """The text of the compaction that this one follows."""
    left_out: int
    """The number of older messages among them that the model does not receive, because they do not fit."""
    replacement: summary_loss.Replacement
    """The replacement with an empty draft."""
    leaf_id: str | None
    """The entry after which the summary is appended; None before the first one."""
    range: summary_ranges.SummaryRange | None
    """The range that a compaction replaces and keeps; None for the branch that a move leaves."""
    tokens_before: int
    move: TreeMove | None = None
    """The move that leaves the branch; None for a compaction."""
    preparation: SummaryPreparation | None = None
    """The data that hooks receive about a compaction; None for a branch."""
    from_hook: bool = False
    """Whether a hook supplied the files, and for a compaction the first kept entry."""

    def keeping_from(self, first_kept_id: str) -> SummaryTask:
        """The same compaction, in which the kept part begins at another entry of its range."""
        if self.range is None or first_kept_id == self.first_kept_id:
            return self
        found = self.range.from_entry(first_kept_id)
        branch = self.present.tree.branch(self.present.leaf_id)
        replacement = summary_loss.drafted_compaction(branch, self.replacement.before, found, "")
        return replace(self, range=found, replaced=found.summarised, replacement=replacement)

    def with_focus(self, focus: str) -> SummaryTask:
        """The same task with a different focus."""
        return replace(self, parts=tuple(part._replace(focus=focus) for part in self.parts))

    @cached_property
    def check(self) -> summary_loss.DraftCheck:
        """Judges drafts by the texts of the messages that are replaced and kept."""
        replaced, kept = self.replacement.replaced, self.replacement.kept
        texts = self.present.texts(message.source for message in (*replaced, *kept))
        return summary_loss.DraftCheck(replaced, kept, texts, self.present.log.cwd)

    @property
    def is_compaction(self) -> bool:
        return self.range is not None

    @property
    def first_kept_id(self) -> str:
        """The first entry that a compaction keeps; empty for the branch that a move leaves."""
        return self.range.first_kept_id if self.range is not None else ""

    @property
    def kept_ids(self) -> frozenset[str] | None:
        """The entries whose messages a compaction keeps; None for the branch that a move leaves."""
        return frozenset(entry.id for entry in self.range.kept) if self.range is not None else None

    @property
    def counted(self) -> str:
        """The number of replaced entries, in words."""
        return plural(self.replacement.entries, "entry")

    @property
    def estimate(self) -> int:
        """The tokens of the replaced entries, as the agent estimates them."""
        return sum(entry.tokens for entry in self.replaced if entry.is_message)

    def text_of(self, written: Mapping[SummaryKind, str]) -> str:
        """The draft: the parts that a model wrote, joined as by the agent."""
        turn = written.get(SummaryKind.TURN, "")
        history = next((text for kind, text in written.items() if kind is not SummaryKind.TURN), "")
        # If only the beginning of a turn was to be summarised, the previous summary covers the history.
        return self.format.split_turn_text(history or self.previous, turn) if turn else history

    def complete(self, text: str) -> str:
        """The text as the model will see it: with the lists of files."""
        files = self.format.files_text(self.files)
        return f"{text.strip()}\n\n{files}" if files else text.strip()

    def drafted(self, text: str) -> summary_loss.Replacement:
        """The replacement with a draft and its lists, as if it were written."""
        return summary_loss.with_draft(self.replacement, self.complete(text))

    def judge(self, text: str) -> summary_loss.JudgedSubjects:
        """The subjects of the replaced range that a draft, with its lists, keeps."""
        return self.check.judge(self.complete(text))

    def change(self, text: str) -> MakeChange:
        """The change that appends a text as the summary.

        It raises BadInput `empty_summary`, and Conflict `session_moved` if the session has other entries by then.
        """
        if not text.strip():
            raise BadInput("empty_summary", f"The summary is empty. {NOT_APPENDED}")

        def make(present: Document) -> EntryChange:
            require_not_moved(present, self.present.leaf_id)
            words = f"of {self.counted}"
            if not self.is_compaction:
                words += " that were left"
            return EntryChange(
                AuditEntry.Action.SUMMARY,
                words,
                self.leaf_id,
                lambda facts: (self._line(text, facts),),
                added_messages=1,
                kept_ids=self.kept_ids,
                move=self.move,
                summary=None if self.is_compaction else self.complete(text),
                from_hook=self.from_hook,
            )

        return make

    def _line(self, text: str, facts: WriteFacts) -> bytes:
        summary, moment = self.complete(text), facts.written_at
        if self.leaf_id is None or not self.is_compaction:
            return self.format.branch_summary_line(
                facts.new_id(),
                self.leaf_id,
                moment,
                from_id=self.present.leaf_id,
                summary=summary,
                files=self.files,
                from_hook=self.from_hook,
            )
        return self.format.compaction_line(
            facts.new_id(),
            self.leaf_id,
            moment,
            summary=summary,
            first_kept_id=self.first_kept_id,
            tokens_before=self.tokens_before,
            files=self.files,
            from_hook=self.from_hook,
        )


def require_not_moved(present: Document, leaf_id: str) -> None:
    """Raise Conflict `session_moved` if a session has continued since a summary was drafted at this last entry."""
    if present.leaf_id != leaf_id:
        raise Conflict(
            "session_moved",
            f"The session {present.path} has continued since this summary was drafted: its last entry is "
            f"{printable(present.leaf_id)} now. {NOT_APPENDED} Draft it again.",
        )


def branch_task(
    path: Path, entry_id: str, focus: str = "", window: int | None = None, *, is_leaf: bool = False
) -> SummaryTask:
    """The task of summarising the branch that a move to an entry leaves; `window` is that of the model that will write
    it, and `is_leaf` as in `destination_of`.

    Raises BadInput `unknown_entry`, `no_summary_form` and `nothing_left`, and the errors of `require_writable` and of
    reading.
    """
    present, form = _opened(path)
    reading = present.reading
    leaf_id = destination_of(present.tree, entry_id, is_leaf=is_leaf).leaf_id
    left = summary_ranges.branch_left(present.tree, present.leaf_id, leaf_id)
    context = present.context()
    settings = reading.agent.settings.for_project(present.log.cwd, Path.home()).branch_summary
    reserve = settings.reserve_tokens if settings is not None else summary_ranges.RESERVE
    fitting = summary_ranges.within_budget(left.entries, summary_ranges.branch_budget(window, reserve), context.removed)
    if not fitting.entries:
        raise BadInput(
            "nothing_left",
            f"A move to {printable(entry_id)} leaves no message of {present.path} behind: there is nothing to "
            f"summarise. {NOT_APPENDED}",
        )
    after = present.context(leaf_id) if leaf_id is not None else reading.reader.rebuild([])
    with lines_of(present) as line:
        conversation = form.conversation(
            _as_json(reading, summary_ranges.messages_left(fitting.entries, context), line)
        )
        left_messages = _as_json(reading, summary_ranges.messages_left(left.entries, context), line)
        files = form.files(left_messages, _earlier(left.entries, line))
    replacement = summary_loss.drafted_branch_summary(left, context, after, leaf_id, "")
    return SummaryTask(
        present,
        form,
        (SummaryPart(SummaryKind.BRANCH, conversation, summary_ranges.BRANCH_OUTPUT, focus=focus),),
        files,
        left.entries,
        "",
        fitting.left_out,
        replacement,
        leaf_id,
        None,
        0,
        TreeMove(entry_id, present.leaf_id, leaf_id, left, wants_summary=True, focus=focus),
    )


def compaction_task(path: Path, focus: str = "") -> SummaryTask:
    """The summary that replaces the beginning of the context from which the agent continues.

    Raises BadInput `no_summary_form` and `nothing_to_summarise`, and the errors of `require_writable` and of reading.
    """
    present, form = _opened(path)
    if not form.honours_compactions:
        raise _no_form(present)
    reading, branch, context = present.reading, present.branch(), present.context()
    budget = reading.agent.settings.for_project(present.log.cwd, Path.home(), model_of(branch)).budget
    found = summary_ranges.compaction_range(branch, budget.keep_recent_tokens or summary_ranges.KEEP_RECENT, context)
    if found is None:
        raise BadInput(
            "nothing_to_summarise",
            f"Nothing of {present.path} precedes what is kept: there is nothing to summarise. {NOT_APPENDED}",
        )
    reserve = budget.reserve_tokens or summary_ranges.RESERVE
    with lines_of(present) as line:
        messages = {
            SummaryKind.HISTORY: summary_ranges.messages_of(found.replaced, context),
            SummaryKind.TURN: summary_ranges.messages_of(found.prefix, context),
        }
        limits = {
            SummaryKind.HISTORY: summary_ranges.history_output(reserve),
            SummaryKind.TURN: summary_ranges.prefix_output(reserve),
        }
        previous = _previous(reading.agent, found.previous_summary, line)
        recorded = {kind: _as_json(reading, some, line) for kind, some in messages.items()}
        parts = tuple(
            SummaryPart(
                kind,
                form.conversation(some),
                limits[kind],
                previous if kind is SummaryKind.HISTORY else "",
                focus,
            )
            for kind, some in recorded.items()
            if some
        )
        earlier = [found.previous_summary, *found.summarised]
        files = form.files(
            [one for some in recorded.values() for one in some],
            _earlier([one for one in earlier if one is not None], line),
        )
    replacement = summary_loss.drafted_compaction(branch, context, found, "")
    return SummaryTask(
        present,
        form,
        parts,
        files,
        found.summarised,
        previous,
        0,
        replacement,
        present.leaf_id,
        found,
        summary_ranges.tokens_before(context),
        preparation=SummaryPreparation(
            found.replaced,
            found.prefix,
            found.kept,
            previous or None,
            files,
            summary_ranges.tokens_before(context),
            found.first_kept_id,
            budget,
        ),
    )


# ---- reading ---------------------------------------------------------------------------------------------


def _opened(path: Path) -> tuple[Document, SummaryFormat]:
    present = Document.to_change(path)
    require_writable(present)
    form = present.agent.format.summary_format
    if form is None:
        raise _no_form(present)
    return present, form


def _no_form(present: Document) -> BadInput:
    reading = present.reading
    return BadInput(
        "no_summary_form",
        f"{reading.generation.label} honours no summary that others append: {present.path} is one of its sessions. "
        f"{NOT_APPENDED}",
    )


def _as_json(reading: Reading, messages: Sequence[Message], line: ReadLine) -> list[Mapping[str, Any]]:
    """Messages in the agent's form."""
    return [
        reading.agent.format.message_json(
            message, line(message.entry), line(message.edit) if message.edit is not None else None
        )
        for message in messages
    ]


def _earlier(entries: Sequence[Entry], line: ReadLine) -> list[Mapping[str, Any]]:
    """The recorded objects of earlier summaries."""
    return [json.loads(line(entry)) for entry in entries if entry.role in _SUMMARIES]


def _previous(agent: Agent, entry: Entry | None, line: ReadLine) -> str:
    """The text of the summary that is updated."""
    found = agent.format.recorded_summary(line(entry)) if entry is not None else None
    return found.text if found is not None else ""
