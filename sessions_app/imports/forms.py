"""The forms that import session files, and remove an imported one."""

from __future__ import annotations

from django import forms


class SessionFilesInput(forms.FileInput):
    """Accepts any number of files."""

    allow_multiple_selected = True


class ImportForm(forms.Form):
    """The files to import. Each gets its own result."""

    sessions = forms.Field(
        widget=SessionFilesInput, error_messages={"required": "No file was chosen. Nothing was imported."}
    )


class ImportRemovalForm(forms.Form):
    """The number of backups that the page said would be removed with the session."""

    backups = forms.IntegerField(min_value=0)
