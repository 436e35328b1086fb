"""The number of lines of each proposal that are also in kept entries, for all proposals of a review together.

Only calls on files have lines to compare. Their hashes are cached for the last few preparations, and the counts for the
last few plans: reloading a page reads nothing, and approving undecided proposals changes no count.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from compaction_app.core.file_touches import FileHistory, Standing, StandingLater, file_calls
from compaction_app.core.reasons import supersession_in
from compaction_app.core.review_fold import Review, Reviewer
from compaction_app.core.transcript import WHOLE, Object, ToolPair, Transcript
from compaction_app.models import Run
from compaction_app.planning.snapshots import open_snapshot_texts, snapshot_of
from compaction_app.runs.reviews import Reviewed
from sessions_app.sessionlog.entries import Target

CACHED: Final = 4
"""The number of cached preparations and plans."""

_histories: OrderedDict[tuple[int, str], FileHistory] = OrderedDict()
_standing: OrderedDict[tuple[int, str, frozenset[Target]], Mapping[int, StandingLater]] = OrderedDict()
_lock = threading.Lock()


class LineChecks:
    """The number of lines of each proposal that are also in later kept calls on the same file.

    Creating it raises the errors of `open_snapshot_texts`.
    """

    def __init__(self, run: Run, reviewed: Reviewed) -> None:
        self._transcript = reviewed.reviewer.transcript
        self._standing = standing_later(run, reviewed)

    def of(self, target: Target) -> Standing | None:
        """The result for one proposal; None if it has no lines to compare."""
        call = call_of(self._transcript, target)
        later = self._standing.get(call.order) if call is not None else None
        return later.standing if later is not None and later.standing.total else None


def checked_reason(reason: str, standing: Standing | None) -> str:
    """A planner's reason, which claims no more than the lines show in the present review."""
    superseded = supersession_in(reason) if standing is not None else None
    return superseded.words(standing) if superseded is not None and standing is not None else reason


def standing_later(run: Run, reviewed: Reviewed) -> Mapping[int, StandingLater]:
    """The same by the order of tool calls, with the last later kept call."""
    key = run.pk, reviewed.mark, reviewed.review.would_go
    with _lock:
        if key in _standing:
            _standing.move_to_end(key)
            return _standing[key]
    found = file_history(run, reviewed.mark).standing(lambda one: stays(reviewed.reviewer, reviewed.review, one))
    with _lock:
        _standing[key] = found
        while len(_standing) > CACHED:
            _standing.popitem(last=False)
    return found


def file_history(run: Run, mark: str) -> FileHistory:
    """The calls on files of a run's transcript. Raises the errors of `open_snapshot_texts`."""
    key = run.pk, mark
    with _lock:
        if key in _histories:
            _histories.move_to_end(key)
            return _histories[key]
    prepared = snapshot_of(run, mark).prepared
    with open_snapshot_texts(run.session.real_path(), prepared) as texts:
        found = FileHistory(file_calls(prepared.transcript(texts)))
    with _lock:
        _histories[key] = found
        while len(_histories) > CACHED:
            _histories.popitem(last=False)
    return found


def call_of(transcript: Transcript, target: Target) -> ToolPair | None:
    """The tool call that a target deletes: the one that it answers, makes, or consists of."""
    entry = transcript.entry(target.entry_id)
    if entry is None:
        return None
    if target.block_index is not None:
        slot = entry.slot(target.block_index)
        return transcript.pairs.made_in(entry, slot) if slot is not None else None
    if entry.result_for is not None:
        return transcript.pairs.answered_by(entry)
    return transcript.pairs.made_in(entry, 0) if len(entry.blocks) == 1 else None


def stays(reviewer: Reviewer, review: Review, found: Object) -> bool:
    """Whether an object is kept if everything undecided is approved."""
    entry = reviewer.transcript.entries[found.position]
    if Target(entry.entry_id) in review.would_go:
        return False
    return found.slot == WHOLE or Target(entry.entry_id, entry.blocks[found.slot].index) not in review.would_go
