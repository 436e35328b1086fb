"""The form of automatic planning on the settings page. It saves at once, and is in force at once."""

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from compaction_app.runs.automatic import PLANNER, SWITCH, planners
from sessions_app.chosen_settings import choose, lock_of
from sessions_app.sessionlog.errors import Conflict, RedlineError
from sessions_app.web.pages import acts_on_post, redirect, require_valid


class AutomaticPlanningForm(forms.Form):
    """The switch, or the planner: each is sent alone."""

    on = forms.TypedChoiceField(
        choices=[("yes", "on"), ("no", "off")], coerce=lambda word: word == "yes", empty_value=None, required=False
    )
    planner = forms.ChoiceField(
        choices=planners,
        required=False,
        error_messages={"invalid_choice": "That planner cannot plan automatically."},
    )

    def save(self) -> None:
        """Store what was sent. Raises Conflict `set_elsewhere` if the configuration sets it."""
        for name, value in ((SWITCH, self.cleaned_data["on"]), (PLANNER, self.cleaned_data["planner"] or None)):
            if value is None:
                continue
            lock = lock_of(name)
            if lock is not None:
                raise Conflict("set_elsewhere", f"{lock.source} sets {name}. Nothing was changed. Change it there.")
            choose(name, value)


@acts_on_post(lambda: reverse("sessions:settings"))
def choose_automatic_planning(request: HttpRequest) -> HttpResponse:
    """Switch automatic planning on or off, or choose its planner."""
    form = AutomaticPlanningForm(request.POST)
    try:
        require_valid(form)
        form.save()
    except RedlineError as fault:
        messages.error(request, fault.message)
    else:
        messages.success(request, f"saved {timezone.localtime():%H:%M}, in force now", extra_tags="saved")
    return redirect(reverse("sessions:settings", fragment="planning"))
