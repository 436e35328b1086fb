"""The forms about running agents that request reviews: how long each may wait, the plans that pass, and declining
one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from django import forms
from django.db.models import Q

from compaction_app.core.handshake_states import OUTCOMES, NextStep
from compaction_app.models import PassRule, Run, WaitRule
from compaction_app.planning.model_registry import models
from compaction_app.planning.planners import PLANNERS
from compaction_app.runs.automatic import OWN_MODEL
from sessions_app.agents.registry import AGENTS
from sessions_app.models import Root

from .lifecycle import LONGEST_WAIT_SECONDS, wait_for

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
        planner.choices = [(name, _planner_label(name)) for name in dict.fromkeys([*names, rule.planner])]
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
        WaitRule.objects.update_or_create(
            agent=self.agent,
            reason=self.reason,
            defaults={
                "seconds": chosen["minutes"] * MINUTE,
                "then": NextStep(chosen["then"]),
                "planner": chosen["planner"],
            },
        )


def _planner_label(name: str) -> str:
    return "the session’s own model" if name == OWN_MODEL else name


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
            "superseded": "superseded reads whose lines all still stand",
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
