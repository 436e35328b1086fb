"""The form that starts a run: each parameter with its effective or its entered value.

An LLM planner is started only by a form that has shown the data that leaves this machine, and its destination:
`disclosed` names the planner and the address that were shown, together with the size of the first request.
"""

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from django import forms
from django.db.models import Exists, OuterRef, Q

from compaction_app.core import parameters as normal
from compaction_app.core.states import RunState
from compaction_app.core.stats import tokens_to_delete
from compaction_app.entries.branches import branch_state
from compaction_app.models import Proposal, Run
from compaction_app.planning.llm_planner import FirstRequest, measure_first_request
from compaction_app.planning.model_registry import ResolvedModel, level_taken, model_named, model_of_session
from compaction_app.planning.plan import EMBEDDED, OFF, effective_parameters, is_llm
from sessions_app.agents.pure.formats import SessionWriter
from sessions_app.document.document import indexed_texts
from sessions_app.index.session_reading import indexed_reading
from sessions_app.models import Session
from sessions_app.sessionlog.context import thinking_level_of
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError
from sessions_app.sessionlog.text import is_noise, one_line, spoken
from sessions_app.web.pages import CheckedField

PARAMETERS: Final[Mapping[str, str]] = {
    "keep": "compression_ratio",
    "preserve_recent": "preserve_recent",
    "query": "query",
}
"""The fields that are parameters of a run, with the parameters' names."""
WAITING_SHOWN: Final = 5
PRESETS: Final[Mapping[int, str]] = {70: "70% careful", 50: "50%", 30: "30%"}
"""Shares to keep, in percent."""
SMALL_WINDOW: Final = 64_000
"""A window of many local models, in tokens."""
LEAST_PRESET: Final = 5
MESSAGES_TRIED: Final = 5
MESSAGE_CHARACTERS: Final = 240


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


def repeated_fields(run: Run) -> dict[str, str]:
    """What a form sends to plan like an earlier run, besides the planner: its own parameters, its branch, and what its
    form had disclosed."""
    given = run.requested_parameters
    fields = {name: str(given[parameter]) for name, parameter in PARAMETERS.items() if parameter in given}
    if "keep" in fields:
        fields["keep"] = f"{100 * float(fields['keep']):g}"
    if run.is_by_llm:
        fields |= {"thinking": run.thinking, "disclosed": disclosure_mark(run.planner, run.base_url)}
    return {**fields, "leaf": run.leaf_id}


def disclosure_mark(planner: str, base_url: str) -> str:
    """The value with which a form proves that it had shown this planner and its address."""
    return f"{planner} at {base_url}"


def _planner(name: str) -> str:
    return model_named(name).planner if is_llm(name) else name


class DisclosingForm(forms.Form):
    """A form that is accepted only if it had shown the data sent to its model, and its destination."""

    disclosed = forms.CharField(required=False)
    """The `disclosure_mark` of the page; empty if it showed none."""

    @cached_property
    def model(self) -> ResolvedModel | None:
        """The model that receives the data; None if none does."""
        raise NotImplementedError

    @property
    def disclosure_mark(self) -> str:
        """The value that the form sends back to prove its disclosure; empty if nothing leaves this machine."""
        return disclosure_mark(self.model.planner, self.model.base_url) if self.model is not None else ""

    def require_disclosure(self, not_done: str = "Nothing was sent.") -> None:
        """Raise Conflict `not_disclosed` unless the submitted form had shown the data sent to this model, and its
        destination."""
        model = self.model
        if model is not None and self.data.get("disclosed", "") != self.disclosure_mark:
            raise Conflict(
                "not_disclosed",
                f"{model.planner} is at {model.host}, and the form had not shown that yet. {not_done} Read below what "
                "leaves this machine, then start.",
            )

    def require_usable_model(self) -> None:
        """Raise BadInput `no_model` if no requests can be sent to its model."""
        if self.model is not None and self.model.fault:
            raise BadInput("no_model", f"{self.model.fault} Nothing was sent.")


class CompactForm(DisclosingForm):
    """The parameters of a run. An empty number means the effective value, which is its initial value; an empty query
    means the user's last message."""

    keep = CheckedField(_ratio, required=False)
    preserve_recent = CheckedField(_count, required=False)
    query = forms.CharField(required=False)
    planner = CheckedField(_planner, required=False)
    thinking = forms.CharField(required=False)
    writer = forms.CharField(required=False)
    leaf = forms.CharField(required=False, strip=False)

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
    def to_delete(self) -> int | None:
        """The approximate number of tokens that the target deletes, in the measure of the session's context; None if
        unknown."""
        size = self.session.context_size
        if size is None or self.leaf_id not in ("", self.session.leaf_id):
            return None
        return size.of(tokens_to_delete(self.session.context_estimate, self._ratio))

    @property
    def to_keep(self) -> int | None:
        """The rest of the context, in the same measure."""
        size, deleted = self.session.context_size, self.to_delete
        return None if size is None or deleted is None else size.tokens - deleted

    @property
    def _ratio(self) -> float:
        return self.cleaned_data.get("keep") or self.effective_ratio

    @property
    def keep_percent(self) -> int:
        """The share to keep, in whole percent."""
        return round(100 * self._ratio)

    @property
    def presets(self) -> list[tuple[int, str]]:
        """Shares to choose from, in percent, each with its words."""
        found = list(PRESETS.items())
        size = self.session.context_size
        if size is not None and size.tokens:
            fitting = 100 * SMALL_WINDOW // size.tokens
            if fitting not in PRESETS and LEAST_PRESET <= fitting < 100:
                found.append((fitting, f"fits {SMALL_WINDOW // 1_000}k"))
        return found

    @property
    def recent(self) -> int:
        """How many of the last entries are never deleted."""
        given = self.cleaned_data.get("preserve_recent", "")
        return int(self.initial["preserve_recent"]) if given == "" else int(given)

    @cached_property
    def last_message(self) -> str:
        """The user's last message on the branch, on one line; empty if it has none, or cannot be read."""
        try:
            turns = branch_state(self.session, self.leaf_id).turns
            for _, entry in reversed(turns[-MESSAGES_TRIED:]):
                text = indexed_texts(self.session, [entry])[entry.id].joined(entry.blocks)
                if text.strip() and not is_noise(text):
                    return one_line(spoken(text), MESSAGE_CHARACTERS)
        except RedlineError:
            return ""
        return ""

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
    def planner_source(self) -> str:
        """Why its planner is preselected; empty if it is not the session's own model."""
        is_own = self.model is not None and self.model == model_of_session(self.session)
        return "This is the session’s own model." if is_own else ""

    @property
    def level_source(self) -> str:
        """The source of the thinking level; empty if it was chosen, or if there is none."""
        own = self.session_level
        if self.is_level_chosen or not own:
            return ""
        source = f"The session’s thinking level is {own}."
        return source if own in (self.level, OFF) else f"{source} The nearest that the model supports is {self.level}."

    @cached_property
    def waiting(self) -> list[Run]:
        """The latest prepared runs of the session whose plan can be reviewed."""
        planned = self.session.runs.reviewable().filter(snapshot__isnull=False)
        is_empty = Q(state=RunState.FAILED) & ~Exists(Proposal.objects.filter(run=OuterRef("pk")))
        return list(planned.exclude(is_empty).order_by("-pk")[:WAITING_SHOWN])

    def first_request(self) -> FirstRequest | RedlineError | None:
        """The first request of the run, or why there is none; None for a planner without a model.

        Invalid values are ignored: the start reports them.
        """
        if self.model is None:
            return None
        try:
            settings = effective_parameters(self.session.agent_settings(Path.home()), self.requested_parameters).values
            return measure_first_request(self.session, self.leaf_id, settings, self.model, self.level)
        except RedlineError as fault:
            return fault
