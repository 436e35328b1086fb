"""The form that commits the approved plan of a run."""

from __future__ import annotations

from django import forms

from compaction_app.display.confirmations import ConfirmationField

from .preflight import Confirmations


class CommitForm(forms.Form):
    """The confirmations, the writer, and the digest of the plan that the page showed."""

    writer = forms.CharField(required=False)
    plan = forms.CharField(required=False)
    yes = ConfirmationField(Confirmations)
