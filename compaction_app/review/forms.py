"""What a button of the review page asks for: a decision of which kind, about which objects.

approve | reject | reopen | withdraw | add = KEY        one object, as `review_keys.key` writes it
narrow = KEY, block = KEY …                             the blocks of an entry that go
approve_turn | reject_turn = NUMBER, approve_all, reject_all        everything undecided there
undo                                                    the last decision
seen = NUMBER                                           always: the version of the review that the page shows
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from django.http import QueryDict

from compaction_app.core.decisions import Kind
from compaction_app.core.review_fold import ReviewItem, ReviewStatus
from compaction_app.core.targets import Target
from sessions_app.sessionlog.errors import BadInput

from .presenter import ReviewDesk, ShownRanges
from .target_ref import target_of

_ONE: Final = {kind.value: kind for kind in Kind if kind is not Kind.NARROW}
_BULK: Final = {"approve": Kind.APPROVE, "reject": Kind.REJECT}


class DecisionRequest(NamedTuple):
    """A decision to be kept. `kind` is None for undo. No targets: there is nothing to decide."""

    kind: Kind | None
    targets: tuple[Target, ...] = ()
    scope: tuple[Target, ...] = ()
    """Of a bulk decision: every proposal that it was made on, decided or not."""


def seen_of(post: QueryDict) -> int:
    """The version of the review that the page of a form shows. Raises BadInput `unknown_decision`."""
    seen = post.get("seen", "")
    if not (seen.isascii() and seen.isdigit() and len(seen) < 10):
        raise _unknown("no version of the review that it was made on")
    return int(seen)


def asked_of(post: QueryDict, desk: ReviewDesk) -> DecisionRequest:
    """The decision that a form asks for. Raises BadInput `unknown_decision`."""
    if "undo" in post:
        return DecisionRequest(None)
    if "narrow" in post:
        entry = _target(post.get("narrow", "")).entry_id
        blocks = (_target(name) for name in post.getlist("block"))
        return DecisionRequest(Kind.NARROW, tuple(block for block in blocks if block.entry_id == entry))
    for name, kind in _BULK.items():
        if f"{name}_all" in post:
            return _bulk(kind, list(desk.review.leads()))
        if f"{name}_turn" in post:
            return _bulk(kind, _turn(desk, post.get(f"{name}_turn", "")))
    for name, kind in _ONE.items():
        if name in post:
            return DecisionRequest(kind, (_target(post.get(name, "")),))
    raise _unknown("no decision")


def shown_of(post: QueryDict) -> ShownRanges:
    """What a browser shows, as the hidden fields of its form say it. What is none is left out."""
    return ShownRanges(_stretches(post.getlist("shown")), _stretches(post.getlist("rail")))


def _stretches(texts: Iterable[str]) -> list[tuple[int, int]]:
    stretches = []
    for text in texts:
        start, dash, end = text.partition("-")
        if dash and all(part.isascii() and part.isdigit() and len(part) < 10 for part in (start, end)):
            stretches.append((int(start), int(end)))
    return stretches


def _bulk(kind: Kind, leads: list[ReviewItem]) -> DecisionRequest:
    """A decision on what is undecided of these proposals."""
    undecided = tuple(item.target for item in leads if item.standing is ReviewStatus.UNDECIDED)
    return DecisionRequest(kind, undecided, tuple(item.target for item in leads))


def _turn(desk: ReviewDesk, number: str) -> list[ReviewItem]:
    """The proposals of one turn."""
    if not (number.isascii() and number.isdigit() and int(number) in desk.outline.turns):
        raise _unknown("a turn that has no proposals")
    return desk.outline.turns[int(number)].leads


def _target(text: str) -> Target:
    target = target_of(text)
    if target is None:
        raise _unknown("no object")
    return target


def _unknown(what: str) -> BadInput:
    return BadInput("unknown_decision", f"The form named {what}. Nothing was decided. Load the page again.")
