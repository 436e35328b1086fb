"""The form that selects the reader of a session."""

from __future__ import annotations

from django import forms

from sessions_app.agents.registry import reader_named
from sessions_app.web.forms import CheckedField


class ReaderForm(forms.Form):
    """The name of a reader; an empty one leaves the choice to Redline."""

    reader = CheckedField(lambda name: reader_named(name).name, required=False)
