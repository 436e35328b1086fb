"""The deletion store: the targets that one run has chosen so far. It is in memory, and its plan always passes the
airlock.

Every change is a transaction: a request is judged alone and in full, merged with the chosen targets, and the whole is
judged again. After a refusal the store is unchanged. Because the chosen plan is closed and valid, a step judges only
the objects that it touches; `visited` counts the objects that were visited.
"""

from collections.abc import Iterable

from sessions_app.sessionlog.entries import Stats, Target, request_of

from .airlock import Airlock, ValidatedDeletion
from .gates import NO_RESTRAINTS, Refusal, Restraints
from .stats import measure, target_met
from .transcript import WHOLE, Object, ToolPair, Transcript


class DeletionStore:
    """The targets chosen in one run, on one transcript, under one set of restraints."""

    def __init__(self, transcript: Transcript, restraints: Restraints = NO_RESTRAINTS) -> None:
        self.transcript = transcript
        self.airlock = Airlock(transcript, restraints)
        self.visited = 0
        self._plan = self.airlock.empty_plan()

    def __contains__(self, found: Object) -> bool:
        """Whether an object is deleted: alone, or as a block of a deleted entry."""
        return found in self._plan or Object(found.position) in self._plan

    @property
    def targets(self) -> tuple[Target, ...]:
        """The chosen targets, in the order in which they would be recorded."""
        return self.airlock.targets(self._plan)

    @property
    def stats(self) -> Stats:
        return measure(self.transcript, self._plan)

    @property
    def target_met(self) -> bool:
        """Whether the plan deletes as much as required."""
        return target_met(self.stats, self.transcript.parameters.compression_ratio)

    def delete(self, request: object) -> Refusal | None:
        """Add a request's targets, and those deleted with them; or return the refusal and change nothing."""
        incoming = self.airlock.judge_request(request)
        if isinstance(incoming, Refusal):
            return incoming
        self.visited += incoming.visited
        return self.delete_objects(incoming.chosen)

    def delete_objects(self, objects: Iterable[Object]) -> Refusal | None:
        """Add objects of the transcript, and those deleted with them; or return the refusal and change nothing."""
        merged = self.airlock.merge(self._plan, objects)
        if isinstance(merged, Refusal):
            return merged
        self.visited += merged.visited
        self._plan = merged
        return None

    def deletable(self, candidates: list[Object]) -> tuple[list[Object], list[Object]]:
        """Matches of a bulk deletion that may be deleted, and those to skip, each as if it were merged alone.

        Results of one call are deleted or kept together, as are its blocks: one verdict applies to all of them that may
        be deleted alone (a human may have pinned one of several blocks).
        """
        verdicts: dict[tuple[bool, int], bool] = {}
        kept: list[Object] = []
        passed_over: list[Object] = []
        for candidate in candidates:
            self.visited += 1
            if not self.airlock.may_go(candidate):
                passed_over.append(candidate)
                continue
            key = self._shared_verdict(candidate)
            passes_over = verdicts.get(key) if key is not None else None
            if passes_over is None:
                passes_over, visited = self.airlock.passes_over(self._plan, candidate)
                self.visited += visited
                if key is not None:
                    verdicts[key] = passes_over
            (passed_over if passes_over else kept).append(candidate)
        return kept, passed_over

    def validated(self) -> ValidatedDeletion:
        """The chosen targets, validated again by their ids alone."""
        validated = self.airlock.validate(request_of(self.targets))
        if isinstance(validated, Refusal):
            raise RuntimeError(f"The store made a plan that the airlock refuses: {validated.message}")
        return validated

    def _shared_verdict(self, candidate: Object) -> tuple[bool, int] | None:
        entry = self.transcript.entries[candidate.position]
        call: ToolPair | None
        if candidate.slot == WHOLE:
            call = self.transcript.pairs.answered_by(entry) if not entry.call_ids else None
        else:
            call = self.transcript.pairs.made_in(entry, candidate.slot)
        return None if call is None else (candidate.slot == WHOLE, call.order)
