"""What is appended to a session: labels, moves of the leaf, summaries; and the label that a hook adds to a move."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from compaction_app.planning.tree_hooks import TreeMove
from sessions_app.agents.changes import WriteFacts
from sessions_app.document.document import Document
from sessions_app.sessionlog.errors import BadInput

NOT_APPENDED: Final = "Nothing was written."
LONGEST_LABEL: Final = 200
"""Characters."""


@dataclass(frozen=True, slots=True)
class EntryChange:
    """What is appended to a session, and what the agent must rebuild of it."""

    action: str
    """An `AuditEntry.Action`."""
    words: str
    """What the entries do, for the audit log and messages: "to e4"."""
    leaf_id: str | None
    """The entry whose context must result; None for an empty one."""
    lines: Callable[[WriteFacts], tuple[bytes, ...]]
    """The lines without their newlines. They are made anew under the lock; the ids of `WriteFacts` are new."""
    added_messages: int = 0
    """How many messages the new entries themselves add to that context."""
    kept_ids: Collection[str] | None = None
    """The entries whose messages stay of that context; None: all."""
    move: TreeMove | None = None
    """The move that it is, if hooks are to be asked about it."""
    summary: str | None = None
    """The whole text of the summary that a move leaves; None if it leaves none."""
    from_hook: bool = False
    """Whether a hook supplied that summary."""


MakeChange = Callable[[Document], EntryChange]
"""Makes the change of a session as it is now. Raises BadInput and Conflict; then nothing is appended."""


def label_words(label: str) -> str:
    """The label as it is written: on one line. Raises BadInput `bad_label`."""
    words = " ".join(label.split())
    if len(words) > LONGEST_LABEL or not words.isprintable():
        raise BadInput(
            "bad_label",
            f"A label has at most {LONGEST_LABEL} characters, all of them printable. {NOT_APPENDED} Shorten it.",
        )
    return words


def labelled(make: MakeChange, label: str) -> MakeChange:
    """The move that a change makes, with one more line that labels its summary, or else the entry that was chosen, as
    pi does. It raises BadInput `bad_label` too."""
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
            line = present.agent.label_line(facts.new_id(), last_id, facts.written_at, target_id, words)
            return moved if line is None else (*moved, line)

        return replace(change, lines=lines)

    return make_labelled
