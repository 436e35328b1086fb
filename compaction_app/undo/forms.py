"""The form that undoes a compaction, or brings back some of its entries."""

from __future__ import annotations

from django import forms

from compaction_app.changes.forms import ConfirmationField


class UndoForm(forms.Form):
    """The confirmations, and the digest of the plan that the page showed."""

    plan = forms.CharField(required=False)
    yes = ConfirmationField()
