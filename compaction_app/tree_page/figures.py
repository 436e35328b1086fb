"""Tokens on the pages of a tree: all in the measure of the session's context."""

from __future__ import annotations

from sessions_app.models import Session
from sessions_app.sessionlog.measure import UNKNOWN_SIZE, ContextSize
from sessions_app.sessionlog.tree_rows import FoldedRows, TreeRow


def measure_of(session: Session) -> ContextSize:
    """The size of the session's context, whose measure converts estimates of other parts."""
    return session.context_size or UNKNOWN_SIZE


def in_measure(session: Session, row: TreeRow | FoldedRows) -> int:
    """The tokens of a row; the sum over all rows is exactly their total."""
    measure = measure_of(session)
    return measure.of(row.tokens_above + row.tokens) - measure.of(row.tokens_above)
