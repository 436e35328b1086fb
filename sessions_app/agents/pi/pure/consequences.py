"""What each generation of pi and Atomic makes of damage, measured with the session managers of pi 0.86.1 and 0.87.1, of
Atomic 0.8.30, and of Atomic after 0.9.15.

All read a session alike. A line that is not JSON is skipped. The first value must be a header with an id; null, false,
0 and empty texts do not count. Of entries with the same id the last one counts. The context is the path from the last
entry to a root. The agents differ in what they do with a session without a header, and after a last line without a
newline; only pi 0.87 and newer apply edits.
"""

from __future__ import annotations

from typing import Final

from sessions_app.sessionlog.diagnosis import AgentConsequence, Severity

PI_0_87: Final = "pi 0.87 and newer"
PI_BEFORE_0_87: Final = "pi before 0.87"
ATOMIC_0_9_11: Final = "Atomic 0.9.11 and newer"
ATOMIC_0_9_9: Final = "Atomic 0.9.9 and 0.9.10"
ATOMIC_0_8: Final = "Atomic 0.8.26 to 0.9.8"
ALL_PI: Final = (PI_0_87, PI_BEFORE_0_87)
ALL_ATOMIC: Final = (ATOMIC_0_9_11, ATOMIC_0_9_9, ATOMIC_0_8)
EVERY_GENERATION: Final = (*ALL_PI, *ALL_ATOMIC)
"""The labels of all generations."""

Consequences = tuple[AgentConsequence, ...]

REFUSED: Final = "refuses to open the session"


def same(severity: Severity, text: str, generations: tuple[str, ...] = EVERY_GENERATION) -> Consequences:
    """The same consequence in all generations, or in these."""
    return tuple(AgentConsequence(generation, severity, text) for generation in generations)


def harmless(text: str) -> Consequences:
    return same(Severity.NONE, text)


def not_a_session() -> Consequences:
    """The first value of the file is not a header with an id."""
    emptied = "empties the file when it opens the session, up to 0.9.3; refuses to open it from 0.9.4 on"
    return (
        *same(Severity.FATAL, REFUSED, (*ALL_PI, ATOMIC_0_9_11, ATOMIC_0_9_9)),
        *same(Severity.FATAL, emptied, (ATOMIC_0_8,)),
    )


def unreadable_line(*, is_old: bool) -> Consequences:
    """A line that is not JSON. An old version is written anew when it is opened."""
    if is_old:
        return same(Severity.LOSS, "skips the line, and removes it when it converts the file to version 3")
    return same(Severity.LOSS, "skips the line")


def unterminated_line(*, is_torn: bool, is_old: bool) -> Consequences:
    """A last line without its newline. A conversion to version 3 writes complete lines."""
    if is_old:
        return unreadable_line(is_old=True) if is_torn else harmless("reads the line")
    reads = "skips the line" if is_torn else "reads the line"
    lost = "which is lost as well" if is_torn else "so that both are lost"
    in_pi = Severity.LOSS if is_torn else Severity.NONE
    return (
        *same(in_pi, f"{reads}, and completes it with a newline", ALL_PI),
        *same(Severity.LOSS, f"{reads}, and appends its next record to it, {lost}", ALL_ATOMIC),
    )


def value_that_is_not_an_object(
    *, is_skipped: bool, is_first: bool, is_leaf: bool, stops_conversion: bool
) -> Consequences:
    """A line with JSON that is not an object. The agents skip null, false, 0 and an empty text."""
    if is_skipped:
        return harmless("skips the line")
    if is_first:
        return not_a_session()
    if stops_conversion:
        return same(Severity.FATAL, "fails when it converts the file to version 3")
    if is_leaf:
        return same(Severity.FATAL, "continues after this line, with nothing of the conversation")
    return harmless("keeps it as an entry that nothing refers to")


def entry_without_id(*, is_accepted: bool, is_leaf: bool) -> Consequences:
    """An entry whose id is missing or not a text. The agents accept a number as an id."""
    if is_accepted:
        return harmless("accepts the id")
    if is_leaf:
        return same(Severity.FATAL, "begins a new branch with the next message, without anything before it")
    return same(Severity.LOSS, "does not send the entry, because nothing can refer to it")


def second_header() -> Consequences:
    return harmless("ignores the line")


def repeated_id() -> Consequences:
    return same(Severity.LOSS, "reads only the last entry with this id, and does not send this one")


def missing_parent(*, is_active: bool) -> Consequences:
    if is_active:
        return same(Severity.LOSS, "sends nothing of what came before this entry")
    return same(Severity.LOSS, "cuts the branch off from what came before this entry")


def cycle(*, is_active: bool) -> Consequences:
    if is_active:
        return same(Severity.FATAL, "never finishes opening the session, and fills its memory")
    return same(Severity.LOSS, "does not show these entries, because no root leads to them")


def byte_order_mark(*, has_header: bool) -> Consequences:
    """It makes the first line invalid JSON."""
    return not_a_session() if has_header else unreadable_line(is_old=False)


def message_entry_without_message(*, is_fatal: bool, is_active: bool) -> Consequences:
    """`is_fatal`: the agents read a field of a message that is missing or null. Another value has no role."""
    if not is_fatal:
        return harmless("does not send the entry")
    if is_active:
        return same(Severity.FATAL, "fails when it opens the session")
    return same(Severity.FATAL, "fails when it records the next message")


def edit_without_content(*, is_missing: bool, is_empty: bool, is_applied: bool) -> Consequences:
    """Only pi 0.87 and newer apply edits, and of each target only the last one.

    `is_missing`: without a replacement; `is_empty`: one without content; otherwise its content is not text or blocks.
    """
    if not is_applied:
        in_pi = AgentConsequence(PI_0_87, Severity.NONE, "does not apply the edit")
    elif is_missing:
        in_pi = AgentConsequence(PI_0_87, Severity.FATAL, "fails when it opens the session")
    elif is_empty:
        in_pi = AgentConsequence(PI_0_87, Severity.LOSS, "sends the edited message without content")
    else:
        in_pi = AgentConsequence(PI_0_87, Severity.FATAL, "fails at the next prompt")
    return in_pi, *same(Severity.NONE, "ignores edits", (PI_BEFORE_0_87, *ALL_ATOMIC))


def invalid_utf8() -> Consequences:
    return same(Severity.LOSS, "reads each invalid byte sequence as \N{REPLACEMENT CHARACTER}")
