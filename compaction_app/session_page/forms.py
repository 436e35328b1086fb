"""The form that selects the reader of a session."""

from __future__ import annotations

from django import forms

from sessions_app.agents.registry import reader_named
from sessions_app.web.forms import CheckedField


class ReaderForm(forms.Form):
    """The name of a reader; an empty one leaves the choice to Redline."""

    reader = CheckedField(lambda name: reader_named(name).name, required=False)


class PlaceForm(forms.Form):
    """A place on the token map: the number of an entry in the context, or a point of the drawing."""

    number = forms.IntegerField(required=False)
    x = forms.IntegerField(required=False)
    y = forms.IntegerField(required=False)

    @property
    def point(self) -> tuple[int, int] | None:
        x, y = self.cleaned_data["x"], self.cleaned_data["y"]
        return (x, y) if x is not None and y is not None else None
