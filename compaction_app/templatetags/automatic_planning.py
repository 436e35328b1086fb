"""The setting of automatic planning, for the settings page, which does not know this app."""

from typing import Any

from django import template
from django.template import Context

from compaction_app.runs.automatic import PLANNER, SWITCH, chosen_planner, is_on, note_on_planner, planners
from compaction_app.runs.presenter import MODELS_PAGE
from sessions_app.chosen_settings import lock_of

register = template.Library()


@register.inclusion_tag("settings_page/automatic_planning.html", takes_context=True)
def automatic_planning_setting(context: Context) -> dict[str, Any]:
    """The switch, the planner, and why a chosen model is not used."""
    chosen, choices = chosen_planner(), planners()
    before, link, after = note_on_planner().partition(MODELS_PAGE)
    return {
        "csrf_token": context.get("csrf_token"),
        "is_on": is_on(),
        "switch_lock": lock_of(SWITCH),
        "planner": chosen,
        "planner_lock": lock_of(PLANNER),
        "planners": choices if chosen in dict(choices) else [*choices, (chosen, f"{chosen} (cannot be used now)")],
        "note": (before, link, after),
    }
