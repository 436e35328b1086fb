"""The forms that restore and delete a backup."""

from __future__ import annotations

from django import forms

from compaction_app.display.confirmations import ConfirmationField

from .service import RestoreConfirmations


class RestoreForm(forms.Form):
    """What was confirmed, and the state of session and backup that the page showed."""

    shown = forms.CharField(required=False)
    yes = ConfirmationField(RestoreConfirmations)


class BackupDeletionForm(forms.Form):
    """Whether the page said that this is the only backup."""

    only = forms.BooleanField(required=False)
