"""The forms by which agents are connected, and connections tested and removed."""

from __future__ import annotations

from pathlib import Path

from django import forms

from sessions_app.sessionlog.errors import BadInput
from sessions_app.web.forms import CheckedField, InlineField


def _directory(text: str) -> str:
    """The directory that a text names. Raises BadInput `no_such_project`."""
    try:
        path = Path(text).expanduser()
    except RuntimeError as unknown:
        raise BadInput("no_such_project", f"{text}: {unknown}") from unknown
    if "\0" in text or not path.is_absolute():
        raise BadInput("no_such_project", "Give the whole path of a directory, beginning with / or ~.")
    return str(path)


class ConnectionForm(forms.Form):
    """A connection of an agent, and the change that was shown."""

    bound_field_class = InlineField

    project = CheckedField(
        _directory,
        max_length=4_000,
        required=False,
        label="Project",
        widget=forms.TextInput(attrs={"class": "input mono", "placeholder": "~/work/project"}),
    )
    digest = forms.CharField(max_length=64, required=False)

    @property
    def directory(self) -> Path | None:
        """The project; None for all projects."""
        named = self.cleaned_data.get("project")
        return Path(named) if named else None
