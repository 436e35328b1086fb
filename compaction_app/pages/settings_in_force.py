"""The page of a session's compaction settings: each value with its source, and the line that changes it.

It changes nothing: agents' files are never written.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from compaction_app.lookups import known_session
from compaction_app.planning.plan import effective_parameters
from sessions_app.agents.base import SettingInForce
from sessions_app.models import Session

HOOKS_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class SettingsView:
    """The data of the page."""

    agent: str
    of_agent: tuple[SettingInForce, ...]
    of_plans: tuple[SettingInForce, ...]
    user_file: str
    """The file for a line that sets a default to another value."""
    switched_off_in: str
    """The file that disables automatic compaction; empty if it is on, or if there is none."""
    compacts_automatically: bool
    threshold: int | None
    """The tokens of the context above which it is due; None if it never is, or if the window is unknown."""
    hooks: list[tuple[str, tuple[str, ...]]]
    """The hooks that take part in a compaction, by the file that names them."""
    own_hooks: list[str]
    """The modules of Redline's own hooks."""
    files: list[str]
    """The files that were read, in their order."""
    faults: tuple[str, ...]


def view_settings(session: Session, home: Path) -> SettingsView:
    """The settings in force for a session's project and model."""
    agent, found = session.continuing_agent, session.agent_settings(home)
    window, user_file = session.window, agent.settings.user_file(home)
    hooks = [(str(file.path), file.hooks[:HOOKS_SHOWN]) for file in found.files if file.hooks]
    return SettingsView(
        agent=agent.label,
        of_agent=found.in_force,
        of_plans=effective_parameters(found, {}).found,
        user_file=str(user_file.path) if user_file is not None else "",
        switched_off_in=str(found.switched_off_in or ""),
        compacts_automatically=found.compacts_automatically,
        threshold=max(0, window - found.budget.reserve(window)) if window and found.compacts_automatically else None,
        hooks=hooks,
        own_hooks=list(settings.REDLINE.hooks),
        files=[str(file.path) for file in found.files],
        faults=tuple(f"{file.path}: {file.fault}" for file in found.files if file.fault),
    )


@require_safe
def compaction_settings(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The settings in force for the compaction of a session, each with its default and the file that sets it."""
    session = known_session(root, path)
    context = {"session": session, "view": view_settings(session, Path.home()), "active_nav": "sessions"}
    return render(request, "settings_in_force/settings.html", context)
