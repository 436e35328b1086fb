"""The decision that a button of the review page requests: its kind, and its targets.

approve | reject | reopen | withdraw | add = REF        one target, as `target_ref.ref_of` writes it
narrow = REF, block = REF …                             the blocks of an entry that are deleted
approve_group | reject_group | reopen_group = KEY       the undecided objects of a group (decided: `reopen`), as
by, tool, kind, reason, over, q                         grouped and filtered on the page
approve_picked | reject_picked | reopen_picked = 1      the same for the selected objects:
pick = REF …
undo                                                    the last decision
seen = NUMBER                                           always: the version of the review that the page shows
mark                                                    the plan for which the page was made
rows = ANCHOR,… opened = REF … groups = KEY,… open = KEY …          the part that the page shows
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from django import forms

from compaction_app.core.decisions import Kind
from compaction_app.core.review_fold import ReviewItem, ReviewStatus
from sessions_app.sessionlog.targets import Target
from sessions_app.web.forms import FormInvalid

from .presenter import ReviewDesk, Shown
from .summary import DECIDED
from .target_ref import target_of

UNDO: Final = "undo"
_BULK: Final = (Kind.APPROVE, Kind.REJECT, Kind.REOPEN)
BUTTONS: Final = (UNDO, *Kind, *(f"{kind}_{extent}" for kind in _BULK for extent in ("group", "picked")))
NOT_DECIDED: Final = "Nothing was decided. Load the page again."
_ANYWAY: Final = {
    Kind.APPROVE: "Approve anyway",
    Kind.REJECT: "Reject anyway",
    Kind.REOPEN: "Reopen anyway",
    Kind.NARROW: "Delete only these anyway",
    Kind.ADD: "Delete anyway",
    Kind.WITHDRAW: "Take back anyway",
}
_THE_REST: Final = {
    Kind.APPROVE: "Approve the rest",
    Kind.REJECT: "Reject the rest",
    Kind.REOPEN: "Reopen the rest",
}


class DecisionRequest(NamedTuple):
    """A decision to be stored. `kind` is None for undo. Without targets there is nothing to decide."""

    kind: Kind | None
    targets: tuple[Target, ...] = ()
    scope: tuple[Target, ...] = ()
    """For a bulk decision: every proposal to which it applied, decided or not."""


class RepeatedDecision(NamedTuple):
    """A decision that was refused because of another window: the button that makes it on the version now shown."""

    name: str
    value: str
    words: str
    blocks: tuple[str, ...]
    picks: tuple[str, ...]


class WordsField(forms.Field):
    """Words separated by commas, in any number of inputs."""

    widget = forms.MultipleHiddenInput

    def clean(self, value: Any) -> list[str]:
        return [word for text in value for word in str(text).split(",") if word]


class DecisionForm(forms.Form):
    """The pressed button, the version of the review, and the part that the browser shows."""

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
    pick = forms.Field(required=False, widget=forms.MultipleHiddenInput)
    rows = WordsField()
    opened = forms.Field(required=False, widget=forms.MultipleHiddenInput)
    groups = WordsField()
    open = forms.Field(required=False, widget=forms.MultipleHiddenInput)

    @property
    def shown(self) -> Shown:
        data = self.cleaned_data
        return Shown(
            rows=frozenset(data["rows"]),
            opened=frozenset(data["opened"]),
            groups=frozenset(data["groups"]),
            open_groups=tuple(data["open"]),
        )

    def decision(self, desk: ReviewDesk) -> DecisionRequest:
        """The decision that the button requests. Raises FormInvalid."""
        button = self._button
        value, (kind, _, extent) = self.data.get(button, ""), button.partition("_")
        if not button:
            raise self._invalid("no decision")
        if button == UNDO:
            return DecisionRequest(None)
        if extent == "group":
            group = desk.group(value)
            if group is None:
                raise self._invalid("a group that has no proposals")
            return _bulk(Kind(kind), group.leads)
        if extent == "picked":
            items = map(desk.review.items.get, map(self._target, self.cleaned_data["pick"]))
            return _bulk(Kind(kind), [item for item in items if item is not None])
        target = self._target(value)
        if kind == Kind.NARROW:
            blocks = map(self._target, self.cleaned_data["block"])
            return DecisionRequest(Kind.NARROW, tuple(block for block in blocks if block.entry_id == target.entry_id))
        return DecisionRequest(Kind(kind), (target,))

    def repeated(self, desk: ReviewDesk) -> RepeatedDecision | None:
        """The same decision on the present review; None if nothing is left to decide. Raises FormInvalid.

        A bulk decision is repeated only for proposals that are still undecided.
        """
        decision, name = self.decision(desk), self._button
        if decision.kind is None or not decision.targets:
            return None
        words = _THE_REST[decision.kind] if "_" in name else _ANYWAY[decision.kind]
        data = self.cleaned_data
        return RepeatedDecision(name, self.data[name], words, tuple(data["block"]), tuple(data["pick"]))

    @property
    def is_undo(self) -> bool:
        return self._button == UNDO

    @property
    def _button(self) -> str:
        """The name of the pressed button; empty if none was."""
        return next((name for name in BUTTONS if name in self.data), "")

    def _target(self, key: str) -> Target:
        target = target_of(key)
        if target is None:
            raise self._invalid("no object")
        return target

    def _invalid(self, what: str) -> FormInvalid:
        self.add_error(None, f"The form named {what}.")
        return FormInvalid(self, NOT_DECIDED)


def _bulk(kind: Kind, items: Iterable[ReviewItem]) -> DecisionRequest:
    """A decision about the undecided ones among these proposals; for `reopen`, about the decided ones."""
    leads = [item for item in items if item.leader is None]
    wanted = DECIDED if kind is Kind.REOPEN else (ReviewStatus.UNDECIDED,)
    targets = tuple(item.target for item in leads if item.standing in wanted)
    return DecisionRequest(kind, targets, tuple(item.target for item in leads))
