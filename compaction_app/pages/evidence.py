"""The evidence for a proposal's reason, within the review or as a page: its lines beside kept ones, and the places of
its names.

A proposal without lines of a file, a repeated output or names has no evidence.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from compaction_app.core.file_touches import LINE_LENGTH, Standing, lines_of, name_places, text_shown
from compaction_app.core.mentions import named_text
from compaction_app.core.reasons import is_about_names, repeat_in
from compaction_app.core.review_fold import ReviewItem
from compaction_app.core.side_by_side import LinePair, aligned, excerpts
from compaction_app.core.transcript import WHOLE, Object, Transcript, TranscriptEntry
from compaction_app.entries.links import entry_address
from compaction_app.entries.view import author_of
from compaction_app.lookups import known_run
from compaction_app.models import Run
from compaction_app.planning.snapshots import open_snapshot_texts, snapshot_of
from compaction_app.review.lines import (
    Outline,
    call_of,
    file_history,
    reason_words,
    ref_of,
    standing_later,
    stays,
    target_of,
)
from compaction_app.runs.reviews import reviewed
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.web.pages import status_of, wants_fragment

AROUND: Final = 2
"""The number of lines shown before and after a line that does not stand."""
LINES_SHOWN: Final = 24
ALONE_SHOWN: Final = 12
"""The maximum number of lines shown if there is no later text beside them."""
ALL_LINES: Final = 4_000
"""The maximum number of lines on one page of evidence."""
LINE_CHARACTERS: Final = 300
LATER_SHOWN: Final = 4
NAMES_SHOWN: Final = 10
ALL_NAMES: Final = 1_000


@dataclass(frozen=True, slots=True)
class EntryPlace:
    """A kept entry, or the deleted one."""

    entry_id: str
    address: str
    words: str
    """A description with the turn: read in turn 79."""


@dataclass(frozen=True, slots=True)
class SideLine:
    """One line on one side. `state`: stands, lost, short, same, new, or none for an empty position."""

    text: str
    state: str


class EvidenceMaker:
    """Evidence for the proposals of one run, in its present review.

    Raises BadInput `not_prepared`; its methods raise the errors of `open_snapshot_texts` and its texts.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._reviewed = reviewed(run)
        self._session = run.session.get_absolute_url()
        self._outline = Outline(self.transcript, self._reviewed.review)

    @property
    def transcript(self) -> Transcript:
        return self._reviewed.reviewer.transcript

    def evidence(self, target: Target, *, whole: bool = False) -> dict[str, Any] | None:
        """The evidence for one proposal, for the page; None if there is no such proposal. `whole`: with every line."""
        item = self._reviewed.review.items.get(target)
        if item is None or item.position < 0:
            return None
        reason = item.origin.reason if item.origin is not None else ""
        prepared = snapshot_of(self._run, self._reviewed.mark).prepared
        with open_snapshot_texts(self._run.session.real_path(), prepared) as texts:
            transcript = prepared.transcript(texts)
            lines = self._lines(item, reason, transcript, ALL_LINES if whole else LINES_SHOWN)
            most = ALL_NAMES if whole else NAMES_SHOWN
            names = self._names(item, transcript, most) if is_about_names(reason) else None
        return {
            "proposal": self._place(Object(item.position)),
            # The part of the reason that is true of the kept entries now.
            "reason": reason_words(reason, lines["standing"] if lines is not None else None, self._outline),
            "lines": lines,
            "names": names,
        }

    # ---- lines ------------------------------------------------------------------------------------------

    def _lines(self, item: ReviewItem, reason: str, transcript: Transcript, most: int) -> dict[str, Any] | None:
        repeated = repeat_in(reason)
        other = transcript.entry(repeated) if repeated is not None else None
        if other is not None:
            found = Object(other.position)
            later = [found] if self._stays(found) else []
            return self._compared(transcript, Object(item.position), later, found if later else None, most)
        call = call_of(transcript, item.target)
        history = file_history(self._run, self._reviewed.mark)
        standing = standing_later(self._run, self._reviewed)
        if call is None or call.order not in standing:
            return None
        best = history.best(call.order, self._stays)
        return self._compared(
            transcript,
            history.calls[call.order].shown,
            [one.shown for one in history.later(call.order) if self._stays(one.shown)],
            best.shown if best is not None else None,
            most,
        )

    def _compared(
        self, transcript: Transcript, shown: Object, later: Sequence[Object], best: Object | None, most: int
    ) -> dict[str, Any]:
        """One text beside the one of later texts that has most of its lines; they stand if any of these has them."""
        text = text_shown(transcript, shown)
        own, beside = lines_of(text), text_shown(transcript, best) if best is not None else ""
        known = {line for found in later for line in lines_of(text_shown(transcript, found))}
        pairs = aligned(own, lines_of(beside) if beside else [])
        states = ["short" if len(line) < LINE_LENGTH else "stands" if line in known else "lost" for line in own]
        lost = states.count("lost")
        sides = _Sides(text, beside, states, set(own))
        pieces = list(sides.excerpts(pairs, most if best is not None or most == ALL_LINES else ALONE_SHOWN))
        drawn = sum(line.state == "lost" for piece in pieces for line in piece["left"])
        places = [self._place(found) for found in reversed(later)]
        return {
            "standing": Standing(states.count("stands"), states.count("stands") + lost),
            "missing": lost,
            "left": self._place(shown),
            "right": self._place(best) if best is not None else None,
            # The later kept calls on the same file.
            "later": places[:LATER_SHOWN],
            "more_later": max(0, len(places) - LATER_SHOWN),
            "excerpts": pieces,
            # The lines of the whole text on the left, and those that do not stand and are not shown.
            "lines": len(own),
            "left_out": lost - drawn,
            "shortest": LINE_LENGTH,
        }

    # ---- names ------------------------------------------------------------------------------------------

    def _names(self, item: ReviewItem, transcript: Transcript, most: int) -> dict[str, Any]:
        """The names of a proposal that occur in no kept entry, the most used first, and the nearest place of each other
        one: a later place, if there is any."""
        objects = self._objects(item.target)
        places = name_places(transcript, objects, self._stays)
        text = "\n".join(named_text(transcript, found) for found in objects)
        nowhere = sorted((name for name, at in places.items() if at is None), key=lambda name: -text.count(name))
        elsewhere = [(name, self._place(at)) for name, at in places.items() if at is not None]
        return {
            "total": len(places),
            "missing": len(nowhere),
            "nowhere": nowhere[:most],
            "more_nowhere": max(0, len(nowhere) - most),
            "elsewhere": elsewhere[:most],
            "more_elsewhere": max(0, len(elsewhere) - most),
        }

    def _objects(self, target: Target) -> Collection[Object]:
        """The objects that a proposal deletes: its own, and the other side of its tool call."""
        call = call_of(self.transcript, target)
        entry = self.transcript.entry(target.entry_id)
        if call is not None:
            return call.objects
        if entry is None:
            return ()
        slot = entry.slot(target.block_index) if target.block_index is not None else WHOLE
        return (Object(entry.position, slot if slot is not None else WHOLE),)

    # ---- words ------------------------------------------------------------------------------------------

    def _place(self, found: Object) -> EntryPlace:
        entry = self.transcript.entries[found.position]
        turn = self._outline.turn_number(found.position)
        block = entry.blocks[found.slot].type if found.slot != WHOLE else ""
        tool = next((one.tool_name for one in self._results(found)), entry.tool_name)
        who = author_of(entry.role, tool, block, otherwise=entry.entry_type)
        return EntryPlace(
            entry.entry_id,
            entry_address(self._session, entry.entry_id),
            f"{tool or who} in turn {turn}" if turn else f"{tool or who} before turn 1",
        )

    def _results(self, found: Object) -> Iterator[TranscriptEntry]:
        """The results of the call that a block makes."""
        entry = self.transcript.entries[found.position]
        call = self.transcript.pairs.made_in(entry, found.slot) if found.slot != WHOLE else None
        return (self.transcript.entries[one.position] for one in (call.results if call is not None else ()))

    def _stays(self, found: Object) -> bool:
        return stays(self._reviewed.reviewer, self._reviewed.review, found)


class _Sides:
    """The lines of two texts as drawn. `states` are those of the left ones."""

    def __init__(self, left: str, right: str, states: Sequence[str], known: Collection[str]) -> None:
        self._left, self._right = left.split("\n"), right.split("\n") if right else []
        self._states = states
        self._new = ["same" if not line or line in known else "new" for line in lines_of(right)]

    def excerpts(self, pairs: Sequence[LinePair], most: int) -> Iterator[dict[str, Any]]:
        """The lines that do not stand, with their surroundings; the first lines if all of them stand.

        Each excerpt has the same number of lines on both sides, and the range of their line numbers.
        """
        lost = [pair for pair in pairs if self._is_lost(pair)]
        pieces = excerpts(pairs, self._is_lost, AROUND, most) if lost and most < len(pairs) else [pairs[:most]]
        for piece in pieces:
            yield {
                "left": [self._line(self._left, self._states, pair.left) for pair in piece],
                "right": [self._line(self._right, self._new, pair.right) for pair in piece],
                "left_range": _range([pair.left for pair in piece]),
                "right_range": _range([pair.right for pair in piece]),
            }

    def _is_lost(self, pair: LinePair) -> bool:
        return pair.left is not None and self._states[pair.left] == "lost"

    def _line(self, lines: Sequence[str], states: Sequence[str], at: int | None) -> SideLine:
        return SideLine("", "none") if at is None else SideLine(lines[at].rstrip()[:LINE_CHARACTERS], states[at])


def _range(numbers: Sequence[int | None]) -> str:
    """The range of lines of a text, counted from 1: 100–108."""
    found = [number + 1 for number in numbers if number is not None]
    return f"{found[0]:,}–{found[-1]:,}" if len(found) > 1 else f"{found[0]:,}" if found else ""


@require_safe
def evidence(request: HttpRequest, run: int) -> HttpResponse:
    """The evidence for the proposal that `of` names; with `all`, every line of it."""
    found = known_run(run)
    target = target_of(request.GET.get("of", ""))
    if target is None:
        raise Http404("The address names no proposal.")
    template = "evidence/evidence.html#evidence" if wants_fragment(request) else "evidence/evidence.html"
    whole = "all" in request.GET
    context = {"run": found, "key": ref_of(target), "whole": whole, "active_nav": "inbox"}
    address = reverse("compaction:evidence", args=[found.pk])
    context["evidence_url"] = f"{address}?{urlencode({'of': ref_of(target)})}"
    try:
        shown = EvidenceMaker(found).evidence(target, whole=whole)
    except RedlineError as fault:
        return render(request, template, {**context, "fault": fault}, status=status_of(fault))
    if shown is None:
        raise Http404("The run has no such proposal.")
    return render(request, template, {**context, "evidence": shown})
