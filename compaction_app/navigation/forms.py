"""The forms that move the leaf, label an entry and make a fork."""

from __future__ import annotations

from django import forms

from compaction_app.changes.entries import LONGEST_LABEL
from compaction_app.changes.forms import ConfirmationField
from sessions_app.web.forms import InlineField


class AppendForm(forms.Form):
    """The confirmations, and the digest of the plan that the page showed."""

    plan = forms.CharField(required=False)
    yes = ConfirmationField()


class LabelForm(forms.Form):
    """The label, and the confirmations; an empty label takes the entry's away."""

    bound_field_class = InlineField
    yes = ConfirmationField()
    label = forms.CharField(
        label="Label",
        required=False,
        max_length=LONGEST_LABEL,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
