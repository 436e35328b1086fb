"""The confirmations that a change requires, as the form of its page submits them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from django import forms

from .change import Confirmations, RequiredConfirmation


class ConfirmationField(forms.MultipleChoiceField):
    """Checkboxes of one name, as `Confirmations`. The change decides which are required."""

    def __init__(self) -> None:
        super().__init__(choices=[(flag.name, flag.name) for flag in fields(Confirmations)], required=False)

    def clean(self, value: Any) -> Confirmations:
        return Confirmations(**dict.fromkeys(super().clean(value), True))


def missing_in(form: forms.Form, required: Iterable[RequiredConfirmation]) -> list[RequiredConfirmation]:
    """The required confirmations missing in a form's field `yes`, in order."""
    given = form["yes"].value() or []
    return [one for one in required if one.name not in given]
