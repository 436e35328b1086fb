"""The pages on which agents are connected, so that they ask before they compact."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from sessions_app import connections
from sessions_app.agents.base import Agent
from sessions_app.agents.edge.installed_version import program_on_path
from sessions_app.agents.registry import version_installed
from sessions_app.disk.configuration_file import read_configuration_file
from sessions_app.server.connection_files import ConnectedAgent
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError, SystemFailure
from sessions_app.web import pages


class ConnectionForm(forms.Form):
    """A connection of an agent, and the change that was shown."""

    bound_field_class = pages.InlineField

    project = pages.CheckedField(
        lambda text: str(pages.named_directory(text, "no_such_project")),
        max_length=4_000,
        required=False,
        label="Project",
        widget=forms.TextInput(attrs={"class": "input mono", "placeholder": "~/work/project"}),
    )
    digest = forms.CharField(max_length=64, required=False)

    @property
    def directory(self) -> Path | None:
        """The project; None for all projects."""
        named = self.cleaned_data.get("project")
        return Path(named) if named else None


def shown_agents() -> list[dict[str, Any]]:
    """The agents that can request reviews, connected and installed ones first, each with its connections: for all
    projects, or for single ones. Raises SystemFailure."""
    connected = connections.all_connections()
    found = [_shown(agent, connected) for agent in connections.AGENTS_WITH_BRIDGES.values()]
    return sorted(found, key=lambda shown: (not shown["connections"], not shown["program"]))


def _shown(agent: Agent, connected: list[ConnectedAgent]) -> dict[str, Any]:
    version = version_installed(agent.key)
    own = [one for one in connected if one.agent == agent.key]
    is_everywhere = any(not one.project for one in own)
    return {
        "agent": agent,
        "program": program_on_path(agent.client.program) or "",
        "version": ".".join(map(str, version)) if version is not None else "",
        "connections": [(one, connections.status_of_connection(one)) for one in own],
        "is_everywhere": is_everywhere,
        # The file for all projects, if it has a bridge without a connection.
        "unconnected_bridge": "" if is_everywhere else _unconnected_bridge(agent),
    }


def _unconnected_bridge(agent: Agent) -> str:
    assert agent.bridge is not None  # noqa: S101  # as all AGENTS_WITH_BRIDGES
    path = agent.bridge.path(Path.home(), None)
    with suppress(RedlineError):  # what cannot be read is reported when the agent is connected
        content = read_configuration_file(path).content
        if content is not None and agent.bridge.installed_version(content, path) is not None:
            return str(path)
    return ""


ACTIVE_NAV: Final = {"active_nav": "settings", "tab": "agents"}
Plan = Callable[[str, Path | None], connections.ConfigurationChange]


def _page(key: str) -> str:
    """The address of the part of the page about this agent."""
    return f"{reverse('sessions:agents')}#agent-{key}"


@require_safe
def agents(request: HttpRequest) -> HttpResponse:
    """All agents that can request reviews, and whether they are connected."""
    return render(request, "connections/agents.html", {"agents": shown_agents(), **ACTIVE_NAV})


@require_http_methods(["GET", "HEAD", "POST"])
def connect_agent(request: HttpRequest, key: str) -> HttpResponse:
    """The page that shows the change to connect an agent; a POST makes it, and tests the connection."""
    agent = _known(key)
    if request.method != "POST":
        return _show(request, "connections/connect.html", agent, connections.planned_connection)
    try:
        change = _confirmed(request, agent, connections.planned_connection)
        one = connections.connect(change, datetime.now(UTC))
    except RedlineError as fault:
        return _show(request, "connections/connect.html", agent, connections.planned_connection, fault)
    tested = connections.try_connection(agent, one, connections.redline_command)
    words = [f"{agent.label} is connected {_where(one)}.", tested.sentence, *change.remarks]
    _add_message(request, tested, [*words, *change.next_steps])
    return pages.redirect("sessions:agents")


@require_http_methods(["GET", "HEAD", "POST"])
def remove_agent(request: HttpRequest, key: str) -> HttpResponse:
    """The page that shows the change to remove a connection; a POST makes it, or only revokes the token."""
    agent = _known(key)
    if request.method != "POST":
        return _show(request, "connections/remove.html", agent, connections.planned_removal)
    message = f"{agent.label} is no longer connected, and its token is void."
    try:
        if "revoke" in request.POST:
            form = ConnectionForm(request.POST)
            pages.require_valid(form)
            one = connections.connection_of(key, form.directory)
            connections.revoke(one)
            message = f"{message} {connections.revocation_note(one)}"
        else:
            connections.disconnect(_confirmed(request, agent, connections.planned_removal))
    except RedlineError as fault:
        return _show(request, "connections/remove.html", agent, connections.planned_removal, fault)
    messages.success(request, message)
    return pages.redirect("sessions:agents")


@pages.acts_on_post(_page)
def test_agent(request: HttpRequest, key: str) -> HttpResponse:
    """Run the installed agent, to check that it requests a review."""
    agent, name = _known(key), request.POST.get("name", "")
    one = next((one for one in connections.all_connections() if (one.agent, one.name) == (key, name)), None)
    if one is None:
        messages.warning(request, f"{agent.label} is not connected any more.")
    else:
        tested = connections.try_connection(agent, one, connections.redline_command)
        _add_message(request, tested, [tested.sentence])
    return pages.redirect("sessions:agents")


def _known(key: str) -> Agent:
    """The agent with this key. Raises Http404."""
    if key not in connections.AGENTS_WITH_BRIDGES:
        raise Http404
    return connections.AGENTS_WITH_BRIDGES[key]


def _confirmed(request: HttpRequest, agent: Agent, plan: Plan) -> connections.ConfigurationChange:
    """The change, if it is the one that was shown. Raises Conflict `other_change` and what `plan` raises."""
    form = ConnectionForm(request.POST)
    pages.require_valid(form)
    change = plan(agent.key, form.directory)
    if change.digest != form.cleaned_data["digest"]:
        raise Conflict(
            "other_change",
            "The file was changed meanwhile. Nothing was written. This is what would be done now.",
        )
    return change


def _show(
    request: HttpRequest, template: str, agent: Agent, plan: Plan, fault: RedlineError | None = None
) -> HttpResponse:
    form = ConnectionForm(request.POST if request.method == "POST" else request.GET)
    change, note = None, ""
    try:
        pages.require_valid(form)
        change = plan(agent.key, form.directory)
    except RedlineError as refused:
        fault = fault or refused
    if plan is connections.planned_removal and form.is_valid() and (change is None or isinstance(fault, SystemFailure)):
        with suppress(RedlineError):  # not connected, or the connection is damaged
            note = connections.revocation_note(connections.connection_of(agent.key, form.directory))
    program = program_on_path(agent.client.program)
    context = {
        "agent": agent,
        "program": program,
        "form": form,
        "change": change,
        "fault": fault,
        "revocation_note": note,
        **ACTIVE_NAV,
    }
    is_read = request.method != "POST" and isinstance(fault, BadInput)
    return render(request, template, context, status=200 if is_read else pages.status_of(fault))


def _add_message(request: HttpRequest, tested: connections.ConnectionTest, sentences: list[str]) -> None:
    level = messages.SUCCESS if tested.has_asked else messages.WARNING
    messages.add_message(request, level, " ".join(sentences))


def _where(one: ConnectedAgent) -> str:
    return f"in {one.project}" if one.project else "in all projects"
