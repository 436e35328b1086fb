"""The forms of summaries: the request for a draft, its text, and the confirmations before it is appended."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from django import forms

from compaction_app.changes.forms import ConfirmationField
from compaction_app.planning.egress_preview import disclosure_mark, require_disclosed
from compaction_app.planning.model_registry import ResolvedModel, model_named, model_of_session
from compaction_app.planning.planners import MANUAL_PLANNER
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput
from sessions_app.web.forms import CheckedField

from .drafts import LONGEST_TEXT, WantedSummary

LONGEST_FOCUS = 4_000


def _planner(name: str) -> str:
    return name if name == MANUAL_PLANNER else model_named(name).planner


class SummaryForm(forms.Form):
    """The requested summary, its model, and its focus."""

    entry = forms.CharField(required=False, strip=False)
    leaf = forms.BooleanField(required=False)
    planner = CheckedField(_planner, required=False)
    focus = forms.CharField(required=False, max_length=LONGEST_FOCUS)
    disclosed = forms.CharField(required=False)

    def __init__(self, session: Session, data: Mapping[str, Any]) -> None:
        self.session = session
        super().__init__(data)
        self.full_clean()

    @property
    def wanted(self) -> WantedSummary:
        return WantedSummary(
            str(self.cleaned_data.get("entry", "")),
            bool(self.cleaned_data.get("leaf")),
            str(self.cleaned_data.get("focus", "")),
        )

    @cached_property
    def model(self) -> ResolvedModel | None:
        """The chosen model, otherwise the session's own; None if the user writes the summary."""
        if self.data.get("planner"):
            name = str(self.cleaned_data.get("planner", MANUAL_PLANNER))
            return None if name == MANUAL_PLANNER else model_named(name)
        return model_of_session(self.session)

    @property
    def planner_name(self) -> str:
        """The chosen model, even if no such model exists."""
        if self.data.get("planner"):
            return str(self.data["planner"])
        return self.model.planner if self.model is not None else MANUAL_PLANNER

    @property
    def disclosure_mark(self) -> str:
        return disclosure_mark(self.model)

    def require_disclosure(self) -> None:
        """Raise Conflict `not_disclosed` unless the form had shown the data to be sent, and its destination; and
        BadInput `no_model`."""
        if self.model is not None and self.model.fault:
            raise BadInput("no_model", f"{self.model.fault} Nothing was sent.")
        require_disclosed(self.model, self.data.get("disclosed", ""), "Nothing was sent.")


class TextForm(forms.Form):
    """The text of a draft, exactly as typed, a name to be inserted at its end, and the digest of the text that the page
    had shown."""

    digest = forms.CharField(required=False)

    text = forms.CharField(required=False, strip=False, max_length=LONGEST_TEXT)
    insert = forms.CharField(required=False)

    @property
    def edited(self) -> str:
        """The text, with the name at its end."""
        text = str(self.cleaned_data["text"])
        name = str(self.cleaned_data["insert"])
        return f"{text.rstrip()}\n\n{name}\n" if name else text


class AppendDraftForm(forms.Form):
    """The confirmations, and the digest of the plan that the page showed."""

    plan = forms.CharField(required=False)
    yes = ConfirmationField()
