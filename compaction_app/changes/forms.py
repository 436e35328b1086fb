"""The confirmations that a change requires, as the form of its page submits them.

A page shows the plan of a change, and its form has the plan's digest: boxes ticked for one plan confirm no other one.
"""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Protocol, Self, TypeVar

from django import forms

from sessions_app.sessionlog.errors import ConfirmationNeeded, RedlineError, TargetNotMet

from .change import Confirmations, PlannedChange, RequiredConfirmation


class ConfirmationField(forms.MultipleChoiceField):
    """Checkboxes of one name, as `Confirmations`. The change decides which are required. `others` are the names of
    boxes that only the page requires."""

    def __init__(self, *others: str) -> None:
        self._others = frozenset(others)
        names = [*(flag.name for flag in fields(Confirmations)), *others]
        super().__init__(choices=[(name, name) for name in names], required=False)

    def clean(self, value: Any) -> Confirmations:
        given = [name for name in super().clean(value) if name not in self._others]
        return Confirmations(**dict.fromkeys(given, True))


class Named(Protocol):
    """A required confirmation, or another box of the same field."""

    @property
    def name(self) -> str: ...


NamedT = TypeVar("NamedT", bound=Named)


def missing_in(form: forms.Form, required: Iterable[NamedT]) -> list[NamedT]:
    """The required confirmations missing in a form's field `yes`, in order."""
    given = form["yes"].value() or []
    return [one for one in required if one.name not in given]


class ConfirmForm(forms.Form):
    """The confirmations of a change, and the digest of the plan that the page showed."""

    plan = forms.CharField(required=False)
    yes = ConfirmationField()

    def of_shown(self, plan: PlannedChange | None) -> Self:
        """The form for the page of this plan: an empty one if the boxes were ticked for another plan."""
        is_of_plan = plan is not None and self["plan"].value() == plan.digest()
        return self if is_of_plan else type(self)()

    def missing(self, plan: PlannedChange | None, fault: RedlineError | None) -> list[RequiredConfirmation]:
        """The confirmations whose absence this error reports, in order; none for another error."""
        if plan is None or not isinstance(fault, ConfirmationNeeded | TargetNotMet):
            return []
        return missing_in(self, plan.confirmations)
