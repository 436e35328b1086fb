"""The pages about waiting agents: one handshake, the latest ones, and the part of every page that lists those waiting.

Their settings are how long each agent may wait, and which plans pass without a review.
"""

from collections.abc import Callable, Iterable
from functools import cache
from http import HTTPStatus
from typing import Any, ClassVar, Final

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from compaction_app.core.handshake_states import OUTCOMES, HandshakeState, NextStep
from compaction_app.handshakes.approval import cancel_approved
from compaction_app.handshakes.lifecycle import LONGEST_WAIT_SECONDS, decline, shown_now, wait_for
from compaction_app.handshakes.waiting import WaitingAgent, address_of, waiting_agents
from compaction_app.models import Compaction, Handshake, PassRule, Run, WaitRule
from compaction_app.planning.model_registry import models
from compaction_app.planning.plan import PLANNERS
from compaction_app.runs.automatic import OWN_MODEL
from sessions_app.agents.registry import AGENTS
from sessions_app.models import Root
from sessions_app.server.connection_files import connections
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.web.pages import FormInvalid, acts_on_post, redirect, require_valid, status_of

STEPS: Final = [(one.value, one.sentence) for one in OUTCOMES]
REASONS: Final = {
    Run.Reason.MANUAL: "when you ask for it",
    Run.Reason.THRESHOLD: "at its threshold",
    Run.Reason.OVERFLOW: "after an overflow",
}
MINUTE: Final = 60
LONGEST_MINUTES: Final = LONGEST_WAIT_SECONDS // MINUTE
MOST_TOKENS: Final = 1_000_000


class DeclineForm(forms.Form):
    """The agent's action without an approved plan."""

    step = forms.ChoiceField(choices=STEPS)


class WaitForm(forms.Form):
    """How long an agent waits for a reason, what it does then, and its planner."""

    minutes = forms.IntegerField(
        label="Minutes",
        min_value=1,
        max_value=LONGEST_MINUTES,
        error_messages=dict.fromkeys(
            ("required", "invalid", "min_value", "max_value"), f"From 1 to {LONGEST_MINUTES} minutes."
        ),
    )
    then = forms.ChoiceField(label="Then it", choices=STEPS)
    planner = forms.ChoiceField(label="Planner")

    def __init__(self, data: Any = None, *, agent: str, reason: str) -> None:
        self.agent, self.reason = agent, reason
        rule = wait_for(agent, reason)
        initial = {"minutes": rule.seconds // MINUTE, "then": rule.then, "planner": rule.planner}
        super().__init__(data, initial=initial, prefix=f"{agent}-{reason}")
        names = [*PLANNERS, OWN_MODEL, *(one.planner for one in models())]
        planner = self.fields["planner"]
        assert isinstance(planner, forms.ChoiceField)  # noqa: S101  # declared above
        labels = {OWN_MODEL: "the session’s own model"}
        planner.choices = [(name, labels.get(name, name)) for name in dict.fromkeys([*names, rule.planner])]
        for field in self.fields.values():
            field.widget.attrs["class"] = "input input--number" if field is self.fields["minutes"] else "input"
            field.widget.attrs["aria-label"] = f"{field.label}: {self.agent_label}, {self.reason_label}"

    @property
    def agent_label(self) -> str:
        return AGENTS[self.agent].label

    @property
    def reason_label(self) -> str:
        return REASONS[Run.Reason(self.reason)]

    def save(self) -> None:
        chosen = self.cleaned_data
        values = {"seconds": chosen["minutes"] * MINUTE, "then": chosen["then"], "planner": chosen["planner"]}
        WaitRule.objects.update_or_create(agent=self.agent, reason=self.reason, defaults=values)


def wait_forms(agents: Iterable[str], data: Any = None) -> list[WaitForm]:
    """A form for each reason of these agents."""
    return [WaitForm(data, agent=agent, reason=reason) for agent in agents for reason in REASONS]


class PassForm(forms.ModelForm):  # type: ignore[type-arg]  # it has no parameters when it runs
    """The plans of one root that pass without a review."""

    most_tokens = forms.IntegerField(
        label="Limit in tokens",
        min_value=0,
        max_value=MOST_TOKENS,
        widget=forms.NumberInput(attrs={"class": "input input--number"}),
        error_messages=dict.fromkeys(
            ("required", "invalid", "min_value", "max_value"), f"From 0 to {MOST_TOKENS:,} tokens."
        ),
    )

    class Meta:
        model = PassRule
        fields = ("superseded", "repeated", "empty", "most_tokens")
        labels: ClassVar = {
            "superseded": "superseded reads whose lines are all kept",
            "repeated": "repeated outputs",
            "empty": "empty outputs",
        }

    def __init__(self, data: Any = None, *, root: Root) -> None:
        self.root = root
        rule = PassRule.objects.filter(root=root).first() or PassRule(root=root)
        super().__init__(data, instance=rule, prefix=f"root-{root.pk}")

    def clean(self) -> dict[str, Any]:
        chosen: dict[str, Any] = super().clean() or self.cleaned_data
        is_ticked = chosen["superseded"] or chosen["repeated"] or chosen["empty"]
        if is_ticked and chosen.get("most_tokens") == 0:
            self.add_error("most_tokens", "With a limit of 0, nothing passes. Raise it, or untick the boxes.")
        return chosen


def pass_forms(agents: Iterable[str], data: Any = None) -> list[PassForm]:
    """A form for each configured root with sessions of these agents, and for each whose rule is on."""
    is_theirs = Q(agent__in=["", *agents]) if agents else Q()
    roots = Root.objects.filter(is_theirs | Q(pass_rule__most_tokens__gt=0), configured=True).order_by("path")
    return [PassForm(data, root=root) for root in roots]


ASKED_SHOWN: Final = 20
"""The number of latest review requests that the page lists."""


def asking_agents() -> list[str]:
    """The keys of the connected agents, in the order of the registry. Raises OSError."""
    connected = {one.agent for one in connections(settings.REDLINE_DATA_DIR)}
    return [key for key in AGENTS if key in connected]


def waiting_on_page(request: HttpRequest) -> dict[str, Callable[[], list[WaitingAgent]]]:
    """The waiting agents, for every page; queried only if a page shows them."""
    del request
    return {"waiting_agents": cache(waiting_agents)}


def _known(number: int) -> Handshake:
    """The handshake of an address. Raises Http404."""
    return get_object_or_404(Handshake.objects.shown().with_session(), pk=number)


def _page(handshake: int) -> str:
    return reverse("compaction:handshake", args=(handshake,))


@require_safe
def handshake(request: HttpRequest, handshake: int) -> HttpResponse:
    """A review request and the possible decisions; no content for a page that already shows its state."""
    found = _known(handshake)
    shown = request.GET.get("shown")
    if shown is not None and shown == shown_now(found, timezone.now()).state:
        return HttpResponse(status=HTTPStatus.NO_CONTENT)
    return _show(request, found)


def _show(request: HttpRequest, found: Handshake, fault: RedlineError | None = None) -> HttpResponse:
    shown = shown_now(found, timezone.now())
    context = {
        "handshake": shown,
        "compaction": Compaction.objects.filter(run=shown.run_id).first() if shown.run_id else None,
        "address": address_of(shown),
        "can_decline": shown.is_open,
        "can_take_back": shown.state == HandshakeState.APPROVED and shown.note is None,
        "is_moving": shown.is_open or shown.state == HandshakeState.APPROVED,
        "steps": {one.value: one.sentence for one in (NextStep.COMPACT, NextStep.CONTINUE, NextStep.STOP)},
        "now": timezone.now(),
        "fault": fault,
        "active_nav": "inbox",
    }
    return render(request, "handshakes/handshake.html", context, status=status_of(fault))


@acts_on_post(_page)
def decline_handshake(request: HttpRequest, handshake: int) -> HttpResponse:
    """Decline a review request, with the chosen action of the agent."""
    found, form = _known(handshake), DeclineForm(request.POST)
    try:
        require_valid(form, "It was not declined.")
        decline(found, NextStep(form.cleaned_data["step"]), timezone.now())
    except RedlineError as fault:
        return _show(request, found, fault)
    return redirect("compaction:handshake", found.pk)


@acts_on_post(_page)
def take_back(request: HttpRequest, handshake: int) -> HttpResponse:
    """Withdraw an approval that is not written yet."""
    found = _known(handshake)
    try:
        cancel_approved(found, timezone.now())
    except RedlineError as fault:
        return _show(request, found, fault)
    return redirect("compaction:handshake", found.pk)


@require_safe
def waiting(request: HttpRequest) -> HttpResponse:
    """The banner of waiting agents, which open pages request."""
    return render(request, "handshakes/waiting.html", {"waiting_agents": waiting_agents()})


@require_http_methods(["GET", "HEAD", "POST"])
def handshakes(request: HttpRequest) -> HttpResponse:
    """The latest review requests, how long agents may wait, and which plans pass without a review."""
    is_of_waits = "waits" in request.POST
    agents = asking_agents()
    waits = wait_forms(agents, request.POST if is_of_waits else None)
    passes = pass_forms(agents, request.POST if "passes" in request.POST else None)
    fault = None
    if request.method == "POST":
        sent = waits if is_of_waits else passes
        wrong = [one for one in sent if one.errors]
        if not wrong:
            for one in sent:
                one.save()
            messages.success(request, "Saved. It applies from the next time.", extra_tags="saved")
            return redirect("compaction:handshakes")
        count = sum(len(one.errors) for one in wrong)
        words = f"Nothing was changed. Correct the {count} errors below."
        fault = FormInvalid(wrong[0]) if count == 1 else BadInput("misfilled", words)
    context = {
        "asked": Handshake.objects.shown().with_session().order_by("-pk")[:ASKED_SHOWN],
        "waits": waits,
        "passes": passes,
        "fault": fault,
        "tab": "agents",
        "active_nav": "settings",
    }
    return render(request, "handshakes/handshakes.html", context, status=status_of(fault))
