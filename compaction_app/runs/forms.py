"""The form that starts a run: each parameter with its effective or its entered value.

An LLM planner is started only by a form that has shown the data that leaves this machine, and its destination:
`disclosed` names the planner and the address that were shown, together with the size of the first request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from django import forms

from compaction_app.core import parameters as normal
from compaction_app.core.stats import tokens_to_delete
from compaction_app.entries.branches import branch_state
from compaction_app.planning.egress_preview import (
    FirstRequest,
    disclosure_mark,
    measure_first_request,
    require_disclosed,
)
from compaction_app.planning.model_registry import ResolvedModel, level_taken, model_named
from compaction_app.planning.plan import EMBEDDED, effective_parameters, is_llm
from sessions_app.agents.pure.format import SessionWriter
from sessions_app.index.session_reading import indexed_reading
from sessions_app.models import Session
from sessions_app.sessionlog.context import thinking_level_of
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.web.pages import CheckedField

PARAMETERS: Final[Mapping[str, str]] = {
    "keep": "compression_ratio",
    "preserve_recent": "preserve_recent",
    "query": "query",
}
"""The fields that are parameters of a run, with the parameters' names."""


def _ratio(typed: str) -> float:
    try:
        ratio = float(typed.rstrip("% ")) / 100
    except ValueError:
        ratio = math.nan
    if normal.compression_ratio(ratio) != ratio:
        raise BadInput("bad_ratio", f"“{typed}” is not a percentage between 0 and 100, both excluded.")
    return ratio


def _count(typed: str) -> int:
    if not typed.isascii() or not typed.isdigit() or len(typed) > 9:
        raise BadInput("bad_preserve_recent", f"“{typed}” is not a whole number from 0 up.")
    return int(typed)


def _planner(name: str) -> str:
    return model_named(name).planner if is_llm(name) else name


class CompactForm(forms.Form):
    """The parameters of a run. An empty number means the effective value, which is its initial value; an empty query
    means the user's last message."""

    keep = CheckedField(_ratio, required=False)
    preserve_recent = CheckedField(_count, required=False)
    query = forms.CharField(required=False)
    planner = CheckedField(_planner, required=False)
    thinking = forms.CharField(required=False)
    writer = forms.CharField(required=False)
    leaf = forms.CharField(required=False, strip=False)
    disclosed = forms.CharField(required=False)

    def __init__(self, session: Session, data: Mapping[str, Any], model: ResolvedModel | None = None) -> None:
        """`model` plans if the form names no planner; without one, the embedded planner does."""
        self.session = session
        self.effective = effective_parameters(session.agent_settings(Path.home()), {})
        self.unnamed_model = model
        values = self.effective.values
        query = values.get("query")
        initial = {
            "keep": f"{round(100 * self.effective_ratio, 6):g}",
            "preserve_recent": str(normal.preserve_recent(values.get("preserve_recent"))),
            "query": query.strip() if isinstance(query, str) else "",
        }
        super().__init__(data, initial=initial)
        self.full_clean()

    def clean_writer(self) -> str:
        """The writer for which the run is planned; empty for the best one."""
        name = str(self.cleaned_data["writer"])
        known = [writer.name for writer in self.writers]
        if name and name not in known:
            raise forms.ValidationError(f"There is no writer {name}. There are {', '.join(known) or 'none'}.")
        return name

    @cached_property
    def writers(self) -> tuple[SessionWriter, ...]:
        """The writers of the session's agent; none if the session was not read yet."""
        reading = indexed_reading(self.session)
        return reading.writers if reading is not None else ()

    @property
    def requested_parameters(self) -> dict[str, object]:
        """The run's own parameters: valid values that were entered and differ from the effective ones."""
        return {
            parameter: self.cleaned_data[name]
            for name, parameter in PARAMETERS.items()
            if self._is_entered(name) and self.data[name].strip() != self.initial[name]
        }

    def _is_entered(self, name: str) -> bool:
        return name in self.data if name == "query" else self.cleaned_data.get(name, "") != ""

    @property
    def to_strike(self) -> int | None:
        """The approximate number of tokens that the target deletes, in the measure of the session's context; None if
        unknown."""
        size, keep = self.session.context_size, self.cleaned_data.get("keep") or self.effective_ratio
        if size is None or self.leaf_id not in ("", self.session.leaf_id):
            return None
        return size.of(tokens_to_delete(self.session.context_estimate, keep))

    @property
    def effective_ratio(self) -> float:
        return normal.compression_ratio(self.effective.values.get("compression_ratio"))

    @property
    def leaf_id(self) -> str:
        return str(self.cleaned_data.get("leaf", ""))

    @property
    def planner_name(self) -> str:
        """The name of the chosen planner, even if no such planner exists."""
        if self.model is not None:
            return self.model.planner
        return self.data.get("planner") or EMBEDDED

    @cached_property
    def model(self) -> ResolvedModel | None:
        """The model of the run; None for a planner without one, and for an unknown one."""
        if not self.data.get("planner"):
            return self.unnamed_model
        name = self.cleaned_data.get("planner", EMBEDDED)
        return model_named(name) if is_llm(name) else None

    @cached_property
    def session_level(self) -> str:
        """The session's thinking level, if the model supports thinking."""
        if self.model is None or not self.model.thinking_levels:
            return ""
        try:
            return thinking_level_of(branch_state(self.session, self.leaf_id).branch)
        except RedlineError:
            # The branch does not exist, which the start reports: a form without a level is harmless.
            return ""

    @property
    def is_level_chosen(self) -> bool:
        return self.model is not None and self.data.get("thinking") in ("", *self.model.thinking_levels)

    @property
    def level(self) -> str:
        """The thinking level: the chosen one, otherwise the session's, as the model supports it."""
        if self.model is None:
            return ""
        if self.is_level_chosen:
            return str(self.data["thinking"])
        return level_taken(self.session_level, self.model.thinking_levels)

    @property
    def disclosure_mark(self) -> str:
        """The value that the form sends back to prove its disclosure; empty if nothing leaves this machine."""
        return disclosure_mark(self.model)

    def require_disclosure(self) -> None:
        """Raise Conflict `not_disclosed` unless the submitted form had shown the data that this planner sends, and its
        destination."""
        require_disclosed(self.model, self.data.get("disclosed", ""), "Nothing was sent and nothing planned.")

    def first_request(self) -> FirstRequest | RedlineError | None:
        """The first request of the run, or why there is none; None for a planner without a model.

        Invalid values are ignored: the start reports them.
        """
        if self.model is None:
            return None
        try:
            return measure_first_request(self.session, self.leaf_id, self.requested_parameters, self.model, self.level)
        except RedlineError as fault:
            return fault
