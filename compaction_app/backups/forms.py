"""The forms that restore and delete a backup."""

from __future__ import annotations

from django import forms

from compaction_app.changes.plan import Confirmations
from compaction_app.display.confirmations import ConfirmationField


class RestoreForm(forms.Form):
    """The confirmations, and the state of session and backup that the page showed."""

    shown = forms.CharField(required=False)
    yes = ConfirmationField(Confirmations)


class BackupDeletionForm(forms.Form):
    """Whether the page said that this was the only backup."""

    only = forms.BooleanField(required=False)
