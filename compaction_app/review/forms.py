"""The decision that a button of the review page requests: its kind, and its targets.

approve | reject | reopen | withdraw | add = REF        one target, as `target_ref.ref_of` writes it
narrow = REF, block = REF …                             the blocks of an entry that are deleted
approve_turn | reject_turn = NUMBER, approve_all, reject_all        everything undecided there
undo                                                    the last decision
seen = NUMBER                                           always: the version of the review that the page shows
mark, shown = FROM-TO …, rail = FROM-TO …               the plan that the page was made on, and what it shows
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from django import forms

from compaction_app.core.decisions import Kind
from compaction_app.core.review_fold import ReviewItem, ReviewStatus
from sessions_app.sessionlog.targets import Target
from sessions_app.web.forms import FormInvalid

from .presenter import ReviewDesk, ShownRanges
from .target_ref import target_of

UNDO: Final = "undo"
BUTTONS: Final = (UNDO, *Kind, "approve_turn", "reject_turn", "approve_all", "reject_all")
NOT_DECIDED: Final = "Nothing was decided. Load the page again."


class DecisionRequest(NamedTuple):
    """A decision to be stored. `kind` is None for undo. Without targets there is nothing to decide."""

    kind: Kind | None
    targets: tuple[Target, ...] = ()
    scope: tuple[Target, ...] = ()
    """For a bulk decision: every proposal that it was made on, decided or not."""


class RangesField(forms.Field):
    """Ranges such as 3-17, each in its own input. Values that are not ranges are ignored."""

    widget = forms.MultipleHiddenInput

    def clean(self, value: Any) -> list[tuple[int, int]]:
        pairs = [text.split("-") for text in value]
        return [
            (int(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2 and all(map(_is_number, pair))
        ]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


class DecisionForm(forms.Form):
    """The pressed button, the version of the review, and what the browser shows of it."""

    seen = forms.IntegerField(
        min_value=0,
        max_value=999_999_999,
        error_messages=dict.fromkeys(
            ("required", "invalid", "min_value", "max_value"),
            "The form named no version of the review that it was made on.",
        ),
    )
    mark = forms.CharField(required=False)
    block = forms.Field(required=False, widget=forms.MultipleHiddenInput)
    shown = RangesField()
    rail = RangesField()

    @property
    def shown_ranges(self) -> ShownRanges:
        return ShownRanges(self.cleaned_data["shown"], self.cleaned_data["rail"])

    def decision(self, desk: ReviewDesk) -> DecisionRequest:
        """The decision that the button requests. Raises FormInvalid."""
        button = next((name for name in BUTTONS if name in self.data), "")
        value, (kind, _, extent) = self.data.get(button, ""), button.partition("_")
        if not button:
            raise self._invalid("no decision")
        if button == UNDO:
            return DecisionRequest(None)
        if extent == "all":
            return _bulk(Kind(kind), list(desk.review.leads()))
        if extent == "turn":
            if not (_is_number(value) and int(value) in desk.outline.turns):
                raise self._invalid("a turn that has no proposals")
            return _bulk(Kind(kind), desk.outline.turns[int(value)].leads)
        target = self._target(value)
        if kind == Kind.NARROW:
            blocks = map(self._target, self.cleaned_data["block"])
            return DecisionRequest(
                Kind.NARROW, tuple(block for block in blocks if block.entry_id == target.entry_id)
            )
        return DecisionRequest(Kind(kind), (target,))

    def _target(self, key: str) -> Target:
        target = target_of(key)
        if target is None:
            raise self._invalid("no object")
        return target

    def _invalid(self, what: str) -> FormInvalid:
        self.add_error(None, f"The form named {what}.")
        return FormInvalid(self, NOT_DECIDED)


def _bulk(kind: Kind, leads: list[ReviewItem]) -> DecisionRequest:
    """A decision on those of these proposals that are undecided."""
    undecided = tuple(item.target for item in leads if item.standing is ReviewStatus.UNDECIDED)
    return DecisionRequest(kind, undecided, tuple(item.target for item in leads))
