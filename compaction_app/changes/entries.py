"""Changes that delete nothing: labels, moves of the leaf, entries built from them, and forks at an entry.

A move to a user's message goes to the entry before it, so that the user can edit the message and send it again.

An `EntryChange` has the appended lines and the expected context; the proof rebuilds the session with the new lines as
the agent would. Hooks are called before another move, without the lock, and notified after it.

A fork is a new session with the conversation up to an entry. It has every line of the branch if the agent has such a
form (`Format.branch_copy`), and otherwise what the agent's fork writer makes of the context. It is the way back from an
agent's own compaction: the conversation before it can be continued, or compacted instead. There is no backup, because
nothing is changed.
"""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

from compaction_app.core.summary_ranges import branch_left
from compaction_app.hooks import session_before_tree, unloaded
from compaction_app.models import AuditEntry
from compaction_app.planning.hook_runner import TreeMove, after_move, ask_tree_hooks
from compaction_app.session_activity import activity_of, append_needs
from sessions_app.agents.pure.formats import Append, Change, SessionWriter, WriteFacts
from sessions_app.agents.reading import Reading
from sessions_app.document.document import Document
from sessions_app.index.index_store import session_row
from sessions_app.models import Session
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.entries import NO_TEXTS, Deletion, Entry, Role, Stats
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.text import printable
from sessions_app.sessionlog.tree import NO_PARENT, SessionTree, labels
from sessions_app.storage.session_loader import LoadedSession, find_torn_line

from .change import Applied, ChangePlan, Confirmations, apply, lines_of, write_facts
from .compaction import require_writable
from .proof import ReadLine, Rebuilt, certificate_of, require_approved, require_messages, with_new_messages
from .records import BackupNote, EntriesNote, ForkNote

NOT_APPENDED: Final = "Nothing was written."
LONGEST_LABEL: Final = 200
"""The maximum length of a label, in characters."""


@dataclass(frozen=True, slots=True)
class EntryChange:
    """The lines appended to a session, and the context that the agent must rebuild from it."""

    action: str
    """The action in the audit log, an `AuditEntry.Action`."""
    words: str
    """The effect of the entries in words, for the audit log and messages: "to e4"."""
    leaf_id: str | None
    """The entry whose context is expected; None for an empty context."""
    lines: Callable[[WriteFacts], tuple[bytes, ...]]
    """The lines without their newlines. They are made again under the lock, because `WriteFacts` then has new ids."""
    added_messages: int = 0
    """How many messages the new entries themselves add to that context."""
    kept_ids: Collection[str] | None = None
    """The entries whose messages stay in that context; None means all."""
    move: TreeMove | None = None
    """The move, if hooks are to be called for it."""
    summary: str | None = None
    """The whole text of the summary that a move adds; None if it adds none."""
    from_hook: bool = False
    """Whether a hook supplied that summary."""


MakeChange = Callable[[Document], EntryChange]
"""Plans the change for the current session. Raises BadInput and Conflict; then nothing is appended."""


def label_words(label: str) -> str:
    """The label as written: on one line. Raises BadInput `bad_label`."""
    words = " ".join(label.split())
    if len(words) > LONGEST_LABEL or not words.isprintable():
        raise BadInput(
            "bad_label",
            f"A label has at most {LONGEST_LABEL} characters, all of them printable. {NOT_APPENDED} Shorten it.",
        )
    return words


def labelled(make: MakeChange, label: str) -> MakeChange:
    """A move with one more line, which labels its summary or, without one, the chosen entry, as pi does. Making the
    change also raises BadInput `bad_label`."""
    words = label_words(label)

    def make_labelled(present: Document) -> EntryChange:
        change = make(present)
        if change.move is None or not words:
            return change
        chosen_id = change.move.target_id

        def lines(facts: WriteFacts) -> tuple[bytes, ...]:
            moved = change.lines(facts)
            last_id = str(json.loads(moved[-1])["id"])
            target_id = last_id if change.summary is not None else chosen_id
            line = present.agent.format.label_line(facts.new_id(), last_id, facts.written_at, target_id, words)
            return moved if line is None else (*moved, line)

        return replace(change, lines=lines)

    return make_labelled


# ---- labels and moves ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Destination:
    """The place to which a move or a fork at an entry leads."""

    entry: Entry
    """The chosen entry."""
    leaf_id: str | None
    """The last entry of the conversation there; None before the first entry."""

    @property
    def is_before(self) -> bool:
        """Whether the leaf is before the chosen entry, whose text is then offered for editing and sending again."""
        return self.leaf_id != self.entry.id


def destination_of(tree: SessionTree, entry_id: str, *, is_leaf: bool = False) -> Destination:
    """The place at which the conversation continues if this entry is chosen: after it, or before a user's message.

    `is_leaf`: after the entry, whatever its role; this takes back a move from an entry that has no answer yet. Raises
    BadInput `unknown_entry`.
    """
    entry = tree.entry(entry_id)
    if is_leaf or entry.role != Role.USER:
        return Destination(entry, entry.id)
    parent = tree.parents[tree.position(entry_id)]
    return Destination(entry, None if parent == NO_PARENT else tree.entries[parent].id)


def move_to(entry_id: str, *, is_leaf: bool = False) -> MakeChange:
    """The change that makes the agent continue after an entry, or before a user's message; see `destination_of`.

    It raises BadInput `unknown_entry`, `already_there` and `no_move`.
    """

    def make(present: Document) -> EntryChange:
        leaf_id = destination_of(present.tree, entry_id, is_leaf=is_leaf).leaf_id
        if leaf_id == present.leaf_id:
            raise BadInput(
                "already_there",
                f"The agent continues there already: {printable(leaf_id)} is the last entry of {present.path}. "
                f"{NOT_APPENDED}",
            )
        _require_form(present, "move")

        def lines(facts: WriteFacts) -> tuple[bytes, ...]:
            line = present.agent.format.leaf_line(facts.new_id(), leaf_id, facts.written_at)
            assert line is not None  # noqa: S101  # `_require_form` refuses the others
            return (line,)

        words = f"to {printable(leaf_id)}" if leaf_id is not None else "to before the first entry"
        left = branch_left(present.tree, present.leaf_id, leaf_id)
        move = TreeMove(entry_id, present.leaf_id, leaf_id, left)
        return EntryChange(AuditEntry.Action.MOVE, words, leaf_id, lines, move=move)

    return make


def set_label(entry_id: str, label: str) -> MakeChange:
    """The change that labels an entry, or removes its label if `label` is blank.

    It raises BadInput `unknown_entry`, `bad_label`, `same_label` and `no_label`.
    """

    def make(present: Document) -> EntryChange:
        words = label_words(label)
        change = _label_change(present, entry_id, words)
        if labels(present.tree).get(entry_id, "") == words:
            what = f"has the label {words}" if words else "has no label"
            raise BadInput(
                "same_label", f"Entry {printable(entry_id)} of {present.path} {what} already. {NOT_APPENDED}"
            )
        return change

    return make


def any_label(entry_id: str) -> MakeChange:
    """A change that stands in for any label of an entry, for planning before the label is known.

    It raises BadInput `unknown_entry` and `no_label`.
    """
    return lambda present: _label_change(present, entry_id, "")


def _label_change(present: Document, entry_id: str, words: str) -> EntryChange:
    present.tree.entry(entry_id)
    _require_form(present, "label")

    def lines(facts: WriteFacts) -> tuple[bytes, ...]:
        line = present.agent.format.label_line(facts.new_id(), present.leaf_id, facts.written_at, entry_id, words)
        assert line is not None  # noqa: S101  # `_require_form` refuses the others
        return (line,)

    target = printable(entry_id)
    what = f"“{words}” on {target}" if words else f"taken from {target}"
    return EntryChange(AuditEntry.Action.LABEL, what, present.leaf_id, lines)


def _require_form(present: Document, form: str) -> None:
    """Raise BadInput `no_move` or `no_label` if the agent's files have no form for it."""
    why = present.agent.format.missing_forms.get(form)
    if why is not None:
        raise BadInput(f"no_{form}", f"{why} {NOT_APPENDED} The session is {present.path}.")


# ---- the append ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AppendPlan(ChangePlan):
    """The effect an append would have now."""

    NOT_DONE = NOT_APPENDED

    change: EntryChange
    draft: int | None = None
    """The draft whose summary is the first of the entries; None if there is no draft."""

    @property
    def facts(self) -> list[Any]:
        change = self.change
        return [change.action, change.words, change.leaf_id, self.present.leaf_id]

    def make(self, facts: WriteFacts) -> Append:
        return Append(self.change.lines(facts))

    def prove(self, line: ReadLine, after: Rebuilt) -> Certificate:
        change, present, reading = self.change, self.present, self.present.reading
        context = present.context(change.leaf_id) if change.leaf_id is not None else reading.reader.rebuild([])
        before = Rebuilt(context, line, change.leaf_id or "")
        kept = [one for one in context.messages if change.kept_ids is None or one.entry.id in change.kept_ids]
        expected = with_new_messages(
            kept, after.context.messages, lambda one: one.entry.id not in present.tree, change.added_messages
        )
        what = f"the {change.action} {change.words}"
        require_messages(self.path, what, reading.agent, expected, after.line, after)
        return certificate_of(self.path, reading.generation, before, after, self.now)

    def note(self, backup: BackupNote | None) -> EntriesNote:
        assert backup is not None  # noqa: S101  # `IS_BACKED_UP`
        return EntriesNote(
            session=self.path,
            backup=backup,
            action=self.change.action,
            words=self.change.words,
            written_at=self.now,
            draft=self.draft,
        )

    def notify(self, applied: Applied[Self]) -> None:
        change = self.change
        if change.move is not None:
            after_move(
                self.present.path,
                self.present.row,
                change.move,
                applied.made.lines,
                applied.backup_path,
                summary=change.summary,
                from_hook=change.from_hook,
            )


def plan_append(path: Path, make: MakeChange, now: datetime, draft: int | None = None) -> AppendPlan:
    """The effect an append would have now. Raises the errors of `require_writable` and `make`."""
    present = Document.to_change(path)
    require_writable(present)
    change = make(present)
    activity = activity_of(present.row, present.state, now)
    torn = find_torn_line(present.agent, present.path)
    needs = dict(append_needs(str(present.path), activity, torn, NOT_APPENDED))
    return AppendPlan(activity, needs, torn, now, present, change, draft)


def append_entries(
    path: Path,
    make: MakeChange,
    confirmations: Confirmations,
    now: datetime,
    *,
    shown: str | None = None,
    draft: int | None = None,
    label: str | None = None,
) -> Applied[AppendPlan]:
    """Append the entries of a change once it is proven.

    `shown` is the digest of the plan for which the confirmations were given, if that was some time ago; `draft` is the
    key of the draft whose summary is appended, `label` the answer of hooks that were already called for its move.
    Raises the errors of `plan_append`, Conflict `plan_differs` and `open_in_agent`, ConfirmationNeeded, BadInput
    `breaks_context`, and SystemFailure `not_proven` and others; then the session is unchanged, unless the message says
    otherwise. Before another move, hooks are called without the lock: raises the errors of `ask_tree_hooks`, and
    `cancelled_by_hook`.
    """
    if session_before_tree.connected() or unloaded():
        plan = plan_append(path, make, now)
        if plan.change.move is not None and (shown is None or shown == plan.digest()):
            plan.require_confirmed(confirmations)
            if label is None:
                answers = ask_tree_hooks(plan.present, plan.change.move, plan.present.row)
                answers.require_not_cancelled()
                label = answers.label
            make, shown = labelled(make, label), plan.digest()
    return apply(path, lambda: plan_append(path, make, now, draft), confirmations, shown=shown)


def words_again(session: Session, entry_id: str) -> str:
    """The text of the user's message before which the agent now continues; empty if the entry is not a user's message.

    Raises BadInput `unknown_entry`, and the errors of reading the session.
    """
    present = Document.of_session(session)
    return text_said(present, entry_id) if present.tree.entry(entry_id).role == Role.USER else ""


def text_said(present: LoadedSession, entry_id: str) -> str:
    """The whole text of a message. Raises BadInput `unknown_entry`."""
    entry = present.tree.entry(entry_id)
    return present.texts([entry]).get(entry_id, NO_TEXTS).joined(entry.blocks)


NOT_MADE = "No new session was made."


@dataclass(frozen=True)
class ForkPlan(ChangePlan):
    """The session that a fork would make now."""

    NOT_DONE = NOT_MADE
    IS_BACKED_UP = False

    destination: Destination
    leaf_id: str
    """The last entry of the new session."""
    writer: SessionWriter

    @property
    def branch(self) -> list[Entry]:
        return self.present.tree.branch(self.leaf_id)

    @property
    def is_copy(self) -> bool:
        """Whether the new session has every recorded line of the branch."""
        with lines_of(self.present) as line:
            facts = write_facts(self.present, line, self.present.path, self.now)
            return self.present.reading.agent.format.branch_copy(self.branch, facts) is not None

    @property
    def facts(self) -> list[Any]:
        return [self.leaf_id, self.writer.name]

    @property
    def written_to(self) -> None:
        return None

    def make(self, facts: WriteFacts) -> Change:
        change: Change | None = self.present.reading.agent.format.branch_copy(self.branch, facts)
        if change is None:
            change = self.writer.write(self.branch, Deletion((), (), Stats()), facts)
        if isinstance(change, Append):
            raise _no_fork(self.present.path, self.present.reading)
        return change

    def prove(self, line: ReadLine, after: Rebuilt) -> Certificate:
        reading = self.present.reading
        before = Rebuilt(self.present.context(self.leaf_id), line, self.leaf_id)
        require_approved(self.path, self.writer, reading.agent, before, (), after)
        return certificate_of(self.path, reading.generation, before, after, self.now)

    def note(self, backup: BackupNote | None) -> ForkNote:
        del backup
        return ForkNote(session=self.path, leaf_id=self.leaf_id, writer=self.writer.name, written_at=self.now)


def plan_fork(path: Path, entry_id: str, now: datetime, *, is_leaf: bool = False) -> ForkPlan:
    """The session that a fork at an entry would make now. Raises the errors of `fork_session` in BadInput."""
    present = Document.to_change(path)
    require_writable(present)
    reading = present.reading
    makes_file = next((writer for writer in reading.honoured_writers if not writer.appends), None)
    if makes_file is None:
        raise _no_fork(path, reading)
    writer = reading.writer(makes_file.name)
    destination = destination_of(present.tree, entry_id, is_leaf=is_leaf)
    leaf_id = destination.leaf_id
    if leaf_id is None:
        raise BadInput(
            "nothing_before",
            f"Nothing comes before {printable(entry_id)}, the first message of {present.path}. {NOT_MADE} Start a new "
            "session in the agent instead.",
        )
    return ForkPlan(activity_of(present.row, None, now), {}, None, now, present, destination, leaf_id, writer)


def fork_session(path: Path, entry_id: str, now: datetime, *, is_leaf: bool = False) -> Session:
    """Make a new session with the conversation up to an entry, or before it if it is a user's message, and return its
    row.

    `is_leaf`: the entry is the last one of the new session, whatever its role. Raises BadInput `unknown_entry`,
    `nothing_before`, `no_fork`, `refused_writer` and the errors of `require_writable`, SystemFailure `not_proven`, and
    the errors of reading and writing; then there is no new session.
    """
    applied = apply(path, lambda: plan_fork(path, entry_id, now, is_leaf=is_leaf), Confirmations())
    return session_row(applied.made.created or path)


def _no_fork(path: Path, reading: Reading) -> BadInput:
    return BadInput("no_fork", f"Sessions of {reading.generation.label} cannot be forked: {path} is one. {NOT_MADE}")
