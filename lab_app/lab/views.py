"""The pages of the benchmark: its results, the form that starts one, the figures of one with the losses of each
strategy, two side by side, and exports."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe
from django_htmx.http import HttpResponseClientRefresh

from compaction_app.planning.model_registry import ResolvedModel, model_named, models, prices_of_session
from compaction_app.providers.types import dollars
from compaction_app.runs.forms import DisclosingForm
from lab_app.models import Experiment, MeasuredSession
from lab_app.pure.measure import CUTS, HORIZONS, MINIMUM_MESSAGES, Lost
from lab_app.pure.report import (
    LABELS,
    StrategyResult,
    TriedSession,
    answer,
    as_csv,
    as_document,
    loss_plot,
    mean,
    percent,
    results_of,
)
from lab_app.pure.strategies import KEYS, STRATEGIES, SUMMARIES, strategies_named
from lab_app.pure.trials import BOUND, KEEPS, Trial
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.web.pages import CheckedField, acts_on_post, redirect, require_valid, status_of, wants_fragment

from .experiments import delete_experiment, start_experiment, stop_experiment

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
        """`is_new`: whether the form has not been submitted, so that every field shows its default."""
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


LOST_SHOWN: Final = 40
"""The number of lost references listed for a strategy."""
KIND_LABELS: Final[Mapping[str, str]] = {
    "output": "outputs",
    "call": "calls",
    "message": "messages",
    "reasoning": "thinking",
    "part": "parts of outputs",
}


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """A strategy with its losses, share by share."""

    key: str
    label: str
    what: str
    cells: Sequence[StrategyResult | None]
    """None if it was not measured at a share."""
    kept: str
    """The share of tokens that it kept, for a strategy that takes no share."""
    is_best: bool
    """Whether no other planning strategy loses less, on average over the shares."""
    failures: int


@dataclass(frozen=True, slots=True)
class DetailRow:
    """The properties of a strategy's plans at one share. Numbers are means over cuts."""

    key: str
    label: str
    kept: str
    deleted: int
    rewritten: int
    saved: str
    pays_after: int | None
    milliseconds: int
    kinds: Sequence[tuple[str, str]]
    horizons: Sequence[str]
    """The losses by horizon, and by the older measure; empty texts if they are not measured."""


@dataclass(frozen=True, slots=True)
class LostRow:
    """A lost reference, with the entry that needed it and the entries that contained it."""

    session: Session
    lost: Lost

    @property
    def first(self) -> str:
        return self.lost.stood_in[0]

    @property
    def further(self) -> int:
        return len(self.lost.stood_in) - 1


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A measured session, with its losses by the strategies that take a share, at one share."""

    measured: MeasuredSession
    cuts: int
    losses: Sequence[str]


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A strategy in two experiments, over the sessions that both measured."""

    label: str
    keep: str
    here: str
    there: str
    change: str


def view_experiment(experiment: Experiment, keep: str = "", strategy: str = "", other: str = "") -> dict[str, Any]:
    """The measured part of an experiment, for its page. Unknown choices are replaced by the first ones.

    `short` counts the sessions that were too short, or need too little of their past, to be measured; `keep` is the
    share of the details; `columns` are the strategies of `sessions`, key and label; `common` counts the sessions that
    both experiments measured.
    """
    rows = list(_shown(experiment))
    tried = [(row, trials_in(row)) for row in rows]
    sessions = [TriedSession(str(row.session.path), trials, _prices(row.session)) for row, trials in tried]
    results = results_of(sessions)
    labels = _labels(experiment)
    shares: list[float] = experiment.keeps
    chosen = next((one for one in shares if f"{one:g}" == keep), shares[len(shares) // 2] if shares else None)
    planning = list(dict.fromkeys(one.strategy for one in results if one.strategy not in (BOUND, SUMMARIES.key)))
    shown = strategy if strategy in labels else next(iter(planning), "")
    every = [
        LostRow(row.session, lost)
        for row, trials in tried
        for trial in trials
        if trial.strategy == shown and trial.keep in (chosen, None)
        for lost in trial.named
    ]
    columns = [(key, labels[key]) for key in planning if key in STRATEGIES and STRATEGIES[key].takes_share]
    against = _other(experiment, other)
    common, changes = _changes(tried, against, labels) if against is not None else (0, [])
    done, keeps = sum(row.measured_at is not None for row in rows), [f"{share:.0%}" for share in shares]
    return {
        "total": len(rows),
        "done": done,
        "percent_done": round(100 * done / len(rows)) if rows else 0,
        "short": sum(row.measured_at is not None and not row.failure and not trials for row, trials in tried),
        "cuts": len({(row.pk, trial.place) for row, trials in tried for trial in trials}),
        "keeps": keeps,
        "choices": list(zip(shares, keeps, strict=True)),
        "rows": _strategy_rows(results, shares, labels),
        "answer": answer(results, labels),
        "plot": loss_plot(results, labels),
        "keep": chosen,
        "details": [_detail(one, labels) for one in results if one.keep in (chosen, None) and one.strategy != BOUND],
        "horizons": HORIZONS,
        "strategy": shown,
        "lost": every[:LOST_SHOWN],
        "more_lost": max(0, len(every) - LOST_SHOWN),
        "sessions": [_session_row(row, trials, chosen, [key for key, _ in columns]) for row, trials in tried],
        "columns": columns,
        "others": list(Experiment.objects.exclude(pk=experiment.pk).order_by("-pk")[:20]),
        "other": against,
        "common": common,
        "changes": changes,
    }


def view_result(experiment: Experiment) -> dict[str, Any]:
    """The answer, the chart and the losses of an experiment, for the page of all."""
    rows = list(_shown(experiment))
    sessions = [TriedSession("", trials_in(row), None) for row in rows]
    results, labels = results_of(sessions), _labels(experiment)
    summary = next((one for one in results if one.strategy == SUMMARIES.key and one.loss is not None), None)
    return {
        "answer": answer(results, labels),
        "plot": loss_plot(results, labels),
        "keeps": [f"{share:.0%}" for share in experiment.keeps],
        "rows": [row for row in _strategy_rows(results, experiment.keeps, labels) if not row.kept],
        "summary": summary,
        "summary_kept": percent(summary.kept) if summary is not None else "",
        "total": len(rows),
        "cuts": len({(number, trial.place) for number, one in enumerate(sessions) for trial in one.trials}),
        "short": sum(not row.failure and not one.trials for row, one in zip(rows, sessions, strict=True)),
    }


def _labels(experiment: Experiment) -> dict[str, str]:
    return {**LABELS, **({experiment.planner: experiment.planner} if experiment.planner else {})}


def _shown(experiment: Experiment) -> QuerySet[MeasuredSession]:
    """The measured sessions in configured roots, in the order of measurement; pages show no others."""
    shown = experiment.measured.filter(session__root__configured=True)
    return shown.select_related("session__root").order_by("pk")


def trials_in(measured: MeasuredSession) -> list[Trial]:
    """The stored trials of a session."""
    return msgspec.convert(measured.trials, list[Trial])


def tried_sessions(experiment: Experiment) -> list[TriedSession]:
    """The measured sessions of an experiment, for its exports."""
    rows = _shown(experiment)
    return [TriedSession(str(row.session.path), trials_in(row), _prices(row.session)) for row in rows]


def about(experiment: Experiment) -> dict[str, Any]:
    """The description of an experiment in an export."""
    return {
        "experiment": experiment.pk,
        "version": experiment.version,
        "createdAt": experiment.created_at.isoformat(),
        "state": experiment.state,
        "strategies": [*experiment.strategies, *([experiment.planner] if experiment.planner else [])],
        "keeps": experiment.keeps,
    }


def _prices(session: Session) -> Any:
    known = prices_of_session(session, Path.home())
    return known.value if known is not None else None


def _strategy_rows(
    results: Sequence[StrategyResult], shares: Sequence[float], labels: Mapping[str, str]
) -> list[StrategyRow]:
    found = {(one.strategy, one.keep): one for one in results}
    keys = list(dict.fromkeys(one.strategy for one in results))
    means = {
        key: mean([[one.loss for one in results if one.strategy == key and one.loss is not None]])
        for key in keys
        if key != BOUND and any((key, share) in found for share in shares)
    }
    least = min((value for value in means.values() if value is not None), default=None)
    rows = []
    for key in keys:
        free = found.get((key, None))
        known = {**STRATEGIES, SUMMARIES.key: SUMMARIES}.get(key)
        what = known.what if known is not None else ""
        if key == BOUND:
            what = "A plan that knows the future. No plan of this size can lose much less."
        rows.append(
            StrategyRow(
                key,
                labels[key],
                what,
                [found.get((key, share)) for share in shares] if free is None else [free],
                percent(free.kept) if free is not None else "",
                least is not None and means.get(key) == least,
                sum(one.failures for one in results if one.strategy == key),
            )
        )
    return rows


def _detail(result: StrategyResult, labels: Mapping[str, str]) -> DetailRow:
    names = [*map(str, HORIZONS), "substrings"]
    return DetailRow(
        result.strategy,
        labels[result.strategy],
        percent(result.kept),
        round(result.deleted),
        round(result.rewritten),
        dollars(result.saved) if result.saved is not None else "",
        result.pays_after,
        max(1, round(1000 * result.seconds)),
        [(KIND_LABELS.get(kind, kind), f"{share:.0%}") for kind, share in result.kinds.items()],
        [percent(result.by_horizon[name]) if name in result.by_horizon else "" for name in names],
    )


def _session_row(
    measured: MeasuredSession, trials: Sequence[Trial], keep: float | None, columns: Iterable[str]
) -> MeasuredRow:
    losses = []
    for key in columns:
        shares = [one.share for one in trials if (one.strategy, one.keep) == (key, keep) and not one.failure]
        value = mean([shares])
        losses.append("" if value is None else percent(value))
    return MeasuredRow(measured, len({trial.place for trial in trials}), losses)


def _other(experiment: Experiment, number: str) -> Experiment | None:
    if not number.isdecimal() or len(number) > 18:
        return None
    return Experiment.objects.exclude(pk=experiment.pk).filter(pk=int(number)).first()


def _changes(
    tried: Sequence[tuple[MeasuredSession, Sequence[Trial]]], other: Experiment, labels: Mapping[str, str]
) -> tuple[int, list[ChangeRow]]:
    """The number of sessions that both measured at some of the same cuts, and the changes there."""
    there = {row.session_id: trials_in(row) for row in other.measured.all()}
    ours: list[TriedSession] = []
    theirs: list[TriedSession] = []
    for row, trials in tried:
        earlier = there.get(row.session_id, [])
        places = {one.place for one in trials} & {one.place for one in earlier}
        if places:
            ours.append(TriedSession("", [one for one in trials if one.place in places], None))
            theirs.append(TriedSession("", [one for one in earlier if one.place in places], None))
    before = {(one.strategy, one.keep): one for one in results_of(theirs)}
    rows = []
    for one in results_of(ours):
        earlier_result = before.get((one.strategy, one.keep))
        if one.loss is None or earlier_result is None or earlier_result.loss is None:
            continue
        rows.append(
            ChangeRow(
                labels.get(one.strategy, one.strategy),
                f"{one.keep:.0%}" if one.keep is not None else "",
                percent(one.loss),
                percent(earlier_result.loss),
                f"{100 * (one.loss - earlier_result.loss):+.1f}",
            )
        )
    return len(ours), rows


PAGE_SIZE: Final = 50
ACTIVE_NAV: Final = {"active_nav": "insights"}


@require_safe
def experiments(request: HttpRequest) -> HttpResponse:
    """The result of the newest finished benchmark, and all of them, the newest first."""
    rows = Experiment.objects.with_counts().order_by("-pk")
    page = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))
    newest = Experiment.objects.filter(state=Experiment.State.DONE).order_by("-pk").first()
    context = {"page": page, "newest": newest, "view": view_result(newest) if newest is not None else None}
    return render(request, "lab/list.html", {**context, **ACTIVE_NAV})


@require_http_methods(["GET", "HEAD", "POST"])
def new_experiment(request: HttpRequest) -> HttpResponse:
    """The form that starts an experiment; a POST starts it."""
    if request.method != "POST":
        return _show_new(request, ExperimentForm(request.GET, is_new="keep" not in request.GET))
    form = ExperimentForm(request.POST, is_new=False)
    if "show" in request.POST:
        return _show_new(request, form)
    try:
        require_valid(form, "Nothing was tested.")
        form.require_usable_model()
        form.require_disclosure()
        keys = form.cleaned_data["strategy"]
        strategies = strategies_named(keys) if keys or form.model is None else []
        experiment = start_experiment(form.sessions, strategies, form.cleaned_data["keep"], form.model)
    except RedlineError as fault:
        return _show_new(request, form, fault)
    return redirect(experiment)


def _show_new(request: HttpRequest, form: ExperimentForm, fault: RedlineError | None = None) -> HttpResponse:
    template = "lab/new.html#chosen" if wants_fragment(request) else "lab/new.html"
    context = {"form": form, "models": models(), "fault": fault, **ACTIVE_NAV}
    return render(request, template, context, status=status_of(fault))


@require_safe
def experiment(request: HttpRequest, experiment: int) -> HttpResponse:
    """The figures of an experiment, during and after the measurement."""
    found = get_object_or_404(Experiment, pk=experiment)
    if wants_fragment(request) and request.GET.get("part") == "progress" and not found.is_active:
        # It has ended: the page is another one.
        return HttpResponseClientRefresh()
    return _show(request, found)


def _show(request: HttpRequest, found: Experiment, fault: RedlineError | None = None) -> HttpResponse:
    chosen = {name: request.GET.get(name, "") for name in ("keep", "strategy", "other")}
    context = {"experiment": found, "view": view_experiment(found, **chosen), "fault": fault, **ACTIVE_NAV}
    part = request.GET.get("part") if wants_fragment(request) else None
    template = "lab/experiment.html#progress" if part == "progress" else "lab/experiment.html"
    return render(request, template, context, status=status_of(fault))


def _page(experiment: int) -> str:
    return reverse("lab:experiment", args=[experiment])


@acts_on_post(_page)
def stop(request: HttpRequest, experiment: int) -> HttpResponse:
    """Stop an experiment; the measured part is kept."""
    found = get_object_or_404(Experiment, pk=experiment)
    try:
        stop_experiment(found)
    except RedlineError as fault:
        return _show(request, found, fault)
    return redirect(found)


@acts_on_post(_page)
def delete(request: HttpRequest, experiment: int) -> HttpResponse:
    """Delete an experiment that has ended."""
    found = get_object_or_404(Experiment, pk=experiment)
    try:
        delete_experiment(found)
    except RedlineError as fault:
        return _show(request, found, fault)
    messages.success(request, f"Benchmark {experiment} was deleted.")
    return redirect("lab:experiments")


@require_safe
def export_csv(request: HttpRequest, experiment: int) -> HttpResponse:
    """The trials as a table, one line each."""
    del request
    found = get_object_or_404(Experiment, pk=experiment)
    answer = HttpResponse(as_csv(tried_sessions(found)), content_type="text/csv; charset=utf-8")
    return _attached(answer, f"redline-benchmark-{experiment}.csv")


@require_safe
def export_json(request: HttpRequest, experiment: int) -> HttpResponse:
    """The figures and trials, for programs."""
    del request
    found = get_object_or_404(Experiment, pk=experiment)
    document = as_document(tried_sessions(found), **about(found))
    return _attached(JsonResponse(document), f"redline-benchmark-{experiment}.json")


def _attached(answer: HttpResponse, name: str) -> HttpResponse:
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
