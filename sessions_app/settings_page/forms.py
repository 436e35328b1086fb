"""The forms of the settings page."""

from __future__ import annotations

from django import forms

from sessions_app.agents.registry import reader_named
from sessions_app.models import Root, Session
from sessions_app.web.forms import CheckedField

from .effective_settings import choose_root_reader, index_again


class RootReaderForm(forms.Form):
    """Chooses the reader of a root; an empty name leaves the choice to Redline."""

    root = forms.ModelChoiceField(
        Root.objects.filter(configured=True),
        error_messages={"invalid_choice": "That root is no longer configured."},
    )
    reader = CheckedField(lambda name: reader_named(name).name, required=False)

    def save(self) -> None:
        choose_root_reader(self.cleaned_data["root"], self.cleaned_data["reader"])


class RereadForm(forms.Form):
    """Reads a session again."""

    session = forms.ModelChoiceField(
        Session.objects.shown().select_related("root"),
        error_messages=dict.fromkeys(("required", "invalid_choice"), "That session is not known."),
    )

    def save(self) -> None:
        index_again(self.cleaned_data["session"])
