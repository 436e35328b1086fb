"""The actions offered for an entry of a session: a move, a label, a fork; and why others are not offered."""

from typing import NamedTuple

from compaction_app.entries.branches import BranchState
from sessions_app.models import Session


class Offers(NamedTuple):
    """The steps of `move`, `label` and `fork` that are offered, and the reasons why the others are not, as
    sentences."""

    offered: frozenset[str]
    not_offered: tuple[str, ...] = ()


def offers_of(session: Session, state: BranchState) -> Offers:
    """The actions possible from the entries of a session."""
    if session.read_only:
        return Offers(frozenset(), (session.read_only,))
    if session.unarchive_command:
        why = f"It is archived: its agent continues neither it nor a fork. Run {session.unarchive_command}."
        return Offers(frozenset(), (why,))
    if session.is_old or not session.has_header:
        why = (
            "No agent appends to a session of an older version or without a header. `redline migrate-session` writes a "
            "copy of the current version, in which all of this is possible."
        )
        return Offers(frozenset(), (why,))
    missing = state.reading.agent.format.missing_forms
    offered = {form for form in ("move", "label") if form not in missing}
    if any(not writer.appends for writer in state.reading.writers):
        offered.add("fork")
    return Offers(frozenset(offered), tuple(missing.values()))
