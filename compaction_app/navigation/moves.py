"""Changes by which one finds the way in a session's tree: a label, and a move of the leaf.

A move to a user's message goes to the entry before it, so that the message can be said again, changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from compaction_app.core.summary_ranges import branch_left
from compaction_app.models import AuditEntry
from compaction_app.planning.tree_hooks import TreeMove
from sessions_app.agents.changes import WriteFacts
from sessions_app.document.document import Document
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.outline import labels
from sessions_app.sessionlog.printable import printable
from sessions_app.sessionlog.tree import NO_PARENT, SessionTree

from .entry_change import NOT_APPENDED, EntryChange, MakeChange, label_words


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a move or a fork to an entry ends."""

    entry: Entry
    """The chosen entry."""
    leaf_id: str | None
    """The last entry of the conversation there; None before the first entry."""

    @property
    def is_before(self) -> bool:
        """Whether that is before the chosen entry, whose text is then offered to be said again."""
        return self.leaf_id != self.entry.id


def destination_of(tree: SessionTree, entry_id: str, *, is_leaf: bool = False) -> Destination:
    """Where the conversation continues if this entry is chosen: after it, or before a user's message.

    `is_leaf`: after it, whoever says it; so a move is taken back from where nobody had answered yet. Raises BadInput
    `unknown_entry`.
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
            line = present.agent.leaf_line(facts.new_id(), leaf_id, facts.written_at)
            assert line is not None  # noqa: S101  # `_require_form` refuses the others
            return (line,)

        words = f"to {printable(leaf_id)}" if leaf_id is not None else "to before the first entry"
        left = branch_left(present.tree, present.leaf_id, leaf_id)
        move = TreeMove(entry_id, present.leaf_id, leaf_id, left)
        return EntryChange(AuditEntry.Action.MOVE, words, leaf_id, lines, move=move)

    return make


def set_label(entry_id: str, label: str) -> MakeChange:
    """The change that labels an entry, or takes its label away if `label` is blank.

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
    """A change that stands for any label of an entry, to plan with before its words are known.

    It raises BadInput `unknown_entry` and `no_label`.
    """

    def make(present: Document) -> EntryChange:
        return _label_change(present, entry_id, "")

    return make


def _label_change(present: Document, entry_id: str, words: str) -> EntryChange:
    present.tree.entry(entry_id)
    _require_form(present, "label")

    def lines(facts: WriteFacts) -> tuple[bytes, ...]:
        line = present.agent.label_line(facts.new_id(), present.leaf_id, facts.written_at, entry_id, words)
        assert line is not None  # noqa: S101  # `_require_form` refuses the others
        return (line,)

    target = printable(entry_id)
    what = f"“{words}” on {target}" if words else f"taken from {target}"
    return EntryChange(AuditEntry.Action.LABEL, what, present.leaf_id, lines)


def _require_form(present: Document, form: str) -> None:
    """Raise BadInput `no_move` or `no_label` if the agent's files have no form for it."""
    why = present.agent.missing_forms.get(form)
    if why is not None:
        raise BadInput(f"no_{form}", f"{why} {NOT_APPENDED} The session is {present.path}.")
