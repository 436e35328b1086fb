"""The form that starts an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from django import forms

from compaction_app.planning.model_registry import ResolvedModel, model_named
from compaction_app.runs.forms import DisclosingForm
from lab_app.pure.measure import CUTS, MINIMUM_MESSAGES
from lab_app.pure.strategies import KEYS, STRATEGIES, SUMMARIES
from lab_app.pure.trials import KEEPS
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput
from sessions_app.web.pages import CheckedField

NO_MODEL: Final = "none"
MOST_SESSIONS: Final = 200
NEWEST: Final = 20
_SHARES: Final = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)


def _planner(name: str) -> str:
    return name if name == NO_MODEL else model_named(name).planner


class ExperimentForm(DisclosingForm):
    """The measured sessions, the strategies, and the shares."""

    session = forms.TypedMultipleChoiceField(coerce=int, required=False)
    newest = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_SESSIONS,
        widget=forms.NumberInput(attrs={"class": "input input--number"}),
    )
    text = forms.CharField(required=False, max_length=200)
    strategy = forms.MultipleChoiceField(
        choices=[(key, {**STRATEGIES, SUMMARIES.key: SUMMARIES}[key].label) for key in KEYS],
        widget=forms.CheckboxSelectMultiple,
        required=False,
    )
    keep = forms.TypedMultipleChoiceField(
        coerce=float,
        choices=[(str(share), f"{share:.0%}") for share in _SHARES],
        widget=forms.CheckboxSelectMultiple,
    )
    planner = CheckedField(_planner, required=False)

    def __init__(self, data: Mapping[str, Any], *, is_new: bool) -> None:
        """`is_new`: whether nothing is chosen yet, so that every field has its default."""
        self._wanted = data.getlist("session") if hasattr(data, "getlist") else []
        super().__init__(None if is_new else data, initial=self._defaults(data) if is_new else None)
        field = self.fields["session"]
        assert isinstance(field, forms.TypedMultipleChoiceField)  # noqa: S101  # narrows the type
        field.choices = [(number, number) for number in self._wanted]

    @staticmethod
    def _defaults(data: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "newest": NEWEST,
            "text": data.get("text", ""),
            "strategy": list(KEYS),
            "keep": [str(share) for share in KEEPS],
            "planner": NO_MODEL,
        }

    @cached_property
    def sessions(self) -> list[Session]:
        """The sessions that would be measured, the newest first; without forks of indexed ones, unless they are named:
        their common part would count twice."""
        shown = Session.objects.shown().select_related("root")
        numbers = [int(one) for one in self._wanted if one.isdecimal() and len(one) < 19]
        if numbers:
            return list(shown.filter(pk__in=numbers).order_by("-mtime_ns"))
        text = str(self["text"].value() or "")
        long = shown.present().originals().filter(entry_count__gte=MINIMUM_MESSAGES).order_by("-mtime_ns")
        return list((long.containing(text) if text else long)[: self._newest])

    @property
    def is_given(self) -> bool:
        """Whether the sessions are given individually."""
        return bool(self._wanted)

    @property
    def _newest(self) -> int:
        value = self["newest"].value()
        text = str(value or "")
        return min(MOST_SESSIONS, max(1, int(text))) if text.isdecimal() and len(text) < 6 else NEWEST

    @property
    def plans(self) -> int:
        """The maximum number of plans that the model would make."""
        return len(self.sessions) * len(CUTS) * len(self["keep"].value() or ())

    @cached_property
    def model(self) -> ResolvedModel | None:
        """The chosen model; None if there is none, or no such model exists."""
        name = str(self["planner"].value() or NO_MODEL)
        try:
            return None if name == NO_MODEL else model_named(name)
        except BadInput:
            return None
