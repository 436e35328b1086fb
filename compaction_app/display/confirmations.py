"""The confirmations that an action requires: as a page shows them, and as its form returns them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from django import forms


@dataclass(frozen=True, slots=True)
class RequiredConfirmation:
    """One confirmation: the value of the checkbox, what the user confirms, and why it is required."""

    name: str
    sentence: str
    why: str


class ConfirmationField(forms.MultipleChoiceField):
    """Checkboxes of one name, as a dataclass with a flag for each. The action decides which are required."""

    def __init__(self, flags: type[Any]) -> None:
        super().__init__(choices=[(flag.name, flag.name) for flag in fields(flags)], required=False)
        self.flags = flags

    def clean(self, value: Any) -> Any:
        return self.flags(**dict.fromkeys(super().clean(value), True))


def missing_in(form: forms.Form, required: Iterable[RequiredConfirmation]) -> list[RequiredConfirmation]:
    """The required confirmations that a form's field `yes` lacks, in order."""
    given = form["yes"].value() or []
    return [one for one in required if one.name not in given]
