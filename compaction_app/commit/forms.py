"""The forms that commit the approved plan of a run, and that approve the rest of it before."""

from __future__ import annotations

from django import forms

from compaction_app.changes.plan import Confirmations
from compaction_app.display.confirmations import ConfirmationField


class CommitForm(forms.Form):
    """The confirmations, the writer, and the digest of the plan that the page showed."""

    writer = forms.CharField(required=False)
    plan = forms.CharField(required=False)
    yes = ConfirmationField(Confirmations)


class RestForm(forms.Form):
    """The approval of everything undecided: the version of the review, and the plan, that the page showed."""

    seen = forms.IntegerField(min_value=0, max_value=999_999_999)
    mark = forms.CharField(required=False)
