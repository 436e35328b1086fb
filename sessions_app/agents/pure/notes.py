"""Notes of the user in place of what a fork leaves out: their words, and their places among what stays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from sessions_app.sessionlog.entries import Entry


def note_text(words: str) -> str:
    """A note of the user as the agent sends it: it says whose it is, and what it stands for."""
    return f"[Note by the user, added with Redline in place of deleted entries: {words}]"


def anywhere(entry: Entry) -> bool:
    """Any entry may follow a note."""
    del entry
    return True


def notes_before(
    order: Iterable[Entry],
    staying: Collection[str],
    notes: Mapping[str, str],
    may_follow: Callable[[Entry], bool] = anywhere,
) -> Mapping[str | None, list[str]]:
    """The notes by the entry that they precede, None for the end.

    A note stands as near to its span as it can: before the next entry that stays and `may_follow` it, but never between
    a call and its results, between reasoning and what it led to, or within a reply of several entries.
    """
    entries = list(order) if notes else []
    answered = {entry.result_for for entry in entries if entry.id in staying and entry.result_for is not None}
    found: dict[str | None, list[str]] = {}
    waiting: list[str] = []
    unanswered: set[str] = set()
    previous: Entry | None = None
    for entry in entries:
        if entry.id not in staying:
            waiting += [notes[entry.id]] if entry.id in notes else []
            continue
        is_apart = not unanswered and entry.result_for is None and not _goes_on(previous, entry)
        if waiting and is_apart and may_follow(entry):
            found[entry.id], waiting = waiting, []
        unanswered |= answered.intersection(entry.call_ids())
        unanswered.discard(entry.result_for or "")
        previous = entry
    return {**found, None: waiting} if waiting else found


def _goes_on(previous: Entry | None, entry: Entry) -> bool:
    """Whether an entry is of the same reply as the one before it."""
    if previous is None:
        return False
    is_reasoning = bool(previous.blocks) and all(block.is_thinking for block in previous.blocks or ())
    return is_reasoning or (bool(entry.reply) and entry.reply == previous.reply)
