"""The pages of settings: general ones, context windows, this browser; under Advanced the whole configuration with its
sources, and what cannot be read.

Folders, how their sessions are opened, and context windows can be changed. The forms of a page are in PAGES, by action.
"""

import ast
import inspect
import json
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db import connection, transaction
from django.db.models import Count, Q, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from sessions_app.agents.base import SettingsFile
from sessions_app.agents.registry import AGENTS, READERS, model_windows, reader_named
from sessions_app.chosen_settings import value_in_force
from sessions_app.disk.discovery import fault_of_root
from sessions_app.disk.files import real_path
from sessions_app.index import context_window_lookup
from sessions_app.index.indexer import index_file
from sessions_app.index.roots import configured_roots, is_in_configuration, managed_path, shown_roots
from sessions_app.models import ChosenWindow, Root, Session
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.sessionlog.model_facts import window_of
from sessions_app.sessionlog.sourced_value import SourcedValue
from sessions_app.web.pages import CheckedField, FormInvalid, named_directory, redirect, status_of

SHOWN: Final = 200
"""The maximum number of rows of a section; the others are counted."""
VALUE_LENGTH: Final = 300
UNKNOWN_IN_SNIPPET: Final = 10
ABSENT: Final = "This folder does not exist yet."


@dataclass(frozen=True, slots=True, kw_only=True)
class Field(SourcedValue[list[str]]):
    """One field of the configuration; its value as text, one for each item of a list or table."""

    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class EffectiveRoot:
    """A root, which has no row until it is first searched, and its sessions. The size is in bytes."""

    root: Root
    is_managed: bool
    source: str
    """Who named it: `added` on this page, `configured`, or an agent's `default`; empty for the managed one."""
    fault: str
    """Why it cannot be searched; empty if it can."""
    sessions: int = 0
    missing: int = 0
    size: int = 0

    @property
    def agent(self) -> str:
        return AGENTS[self.root.agent].label if self.root.agent in AGENTS else "agent detected by path"

    @property
    def is_absent(self) -> bool:
        """Whether the folder does not exist yet."""
        return self.fault == ABSENT


@dataclass(frozen=True, slots=True)
class ModelWindow:
    """A model that sessions use, or that has a configured window."""

    name: str
    sessions: int
    window: SourcedValue[int] | None
    is_configured: bool
    """Whether the configuration sets it, so that it cannot be changed on the page."""
    chosen: int | None
    """The window that was chosen on the page."""

    @property
    def has_plain_name(self) -> bool:
        """Whether a form can contain its name: not every character is possible."""
        return self.name.isprintable()


def general() -> dict[str, Any]:
    """The folders that are searched; those that do not exist yet apart from the others."""
    roots = _roots()
    absent = [one for one in roots if one.is_absent]
    return {"folders": [one for one in roots if not one.is_absent], "absent": absent, "readers": list(READERS)}


def windows() -> dict[str, Any]:
    """The context windows of models, and lines for redline.toml that configure the unknown ones."""
    models = _models(model_windows(Path.home()))
    snippet = _snippet([model.name for model in models if model.window is None])
    return {"models": models, "snippet": snippet, "file": _configuration_file()}


def browser() -> dict[str, Any]:
    """Nothing: the theme is in the context of every page."""
    return {}


def advanced() -> dict[str, Any]:
    """The whole configuration, the agents' own settings, what cannot be read, and versions. Raises SystemFailure."""
    shown = Session.objects.shown()
    unreadable = shown.exclude(fault="").order_by("root", "relative_path")
    database = Path(str(connection.settings_dict["NAME"]))
    database_files = [database, database.with_name(f"{database.name}-wal")]
    return {
        "fields": _fields(),
        "file": _configuration_file(),
        "file_there": Path(_configuration_file()).exists(),
        "data_directory": str(settings.REDLINE_DATA_DIR),
        "agent_files": _agent_files(Path.home()),
        "unreadable": list(unreadable.for_display()[:SHOWN]),
        "unreadable_count": unreadable.count(),
        "damaged": shown.filter(damage_count__gt=0, fault="").count(),
        "redline_version": version("redline"),
        "python_version": platform.python_version(),
        "database": str(database),
        "database_bytes": sum(one.stat().st_size for one in database_files if one.is_file()),
    }


def _configuration_file() -> str:
    return str(settings.REDLINE_DATA_DIR / settings.REDLINE_FILE_NAME)


# ---- the configuration -------------------------------------------------------------------------------------


def _fields() -> list[Field]:
    described = _descriptions(type(settings.REDLINE))
    fields = []
    for name in type(settings.REDLINE).model_fields:
        found = value_in_force(name)
        meaning = " ".join(described.get(name, "").replace("`", "").split())
        fields.append(Field(_in_words(found.value), found.source, found.merged, name=name, meaning=meaning))
    return fields


def _descriptions(model: type) -> dict[str, str]:
    """The text below each field of a class. If pydantic read them, every command would take longer to start."""
    (defined,) = ast.parse(inspect.getsource(model)).body
    lines = pairwise(ast.iter_child_nodes(defined))
    return {
        field.target.id: str(text.value.value)
        for field, text in lines
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def _in_words(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{key}: {_plain(one)}" for key, one in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return [_plain(value)]


def _plain(value: Any) -> str:
    """A value on one line; a pydantic model as its non-empty fields."""
    fields = getattr(type(value), "model_fields", None)
    if fields is not None:
        return ", ".join(f"{name} {text}" for name in fields if (text := _plain(getattr(value, name))))
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)[:VALUE_LENGTH]


# ---- roots and agents --------------------------------------------------------------------------------------


def _roots() -> list[EffectiveRoot]:
    managed = str(managed_path())
    there = Q(missing=False)
    counted = Session.objects.values_list("root").annotate(
        known=Count("pk", filter=there),
        gone=Count("pk", filter=~there),
        bytes=Sum("size", filter=there, default=0),
    )
    sums = {root: counts for root, *counts in counted}
    return [
        EffectiveRoot(
            root,
            root.path == managed,
            "" if root.path == managed else _source_of(root),
            fault_of_root(Path(root.path)) or ("" if Path(root.path).exists() else "This folder does not exist yet."),
            *sums.get(root.pk, ()),
        )
        for root in shown_roots()
    ]


def _source_of(root: Root) -> str:
    if not is_in_configuration(root):
        return "added"
    return "configured" if settings.REDLINE_SOURCES.get("roots") else "default"


def _agent_files(home: Path) -> list[tuple[SettingsFile, list[tuple[str, str]]]]:
    """The agents' own settings files, each with the settings that concern compaction."""
    found = [agent.settings.user_file(home) for agent in AGENTS.values()]
    return [
        (file, [(name, json.dumps(value)[:VALUE_LENGTH]) for name, value in file.compaction.items()][:SHOWN])
        for file in found
        if file is not None
    ]


# ---- models ------------------------------------------------------------------------------------------------


def _models(agents: Mapping[str, int]) -> list[ModelWindow]:
    named = Session.objects.shown().with_model()
    counted = dict(named.order_by("model").values_list("model").annotate(Count("pk")))
    configured, chosen = context_window_lookup.configured_windows(), context_window_lookup.chosen_windows()
    counted |= {model: 0 for model in chosen if model not in counted}
    models = [
        ModelWindow(
            model,
            sessions,
            window_of(model, chosen, agents),
            model in configured,
            chosen[model].value if model in chosen and model not in configured else None,
        )
        for model, sessions in counted.items()
    ]
    return sorted(models, key=lambda model: (model.window is not None, -model.sessions, model.name))


def _snippet(unknown: list[str]) -> str:
    plain = [name for name in unknown if name.isprintable() and name.isascii()][:UNKNOWN_IN_SNIPPET]
    return "\n".join(["[windows]", *(f"{json.dumps(name)} = 200000" for name in plain)]) if plain else ""


# ---- the forms ---------------------------------------------------------------------------------------------

NAME_LENGTH: Final = 80
SMALLEST_WINDOW: Final = 1_000
LARGEST_WINDOW: Final = 100_000_000


class SettingForm(forms.Form):
    """A form of the page; `save` carries it out."""

    def save(self) -> None:
        raise NotImplementedError


class UnknownForm(SettingForm):
    """Stands for a form that the page does not have; it is never valid."""

    def clean(self) -> dict[str, Any]:
        raise forms.ValidationError("This page has no such form.")


class RootReaderForm(SettingForm):
    """Chooses the reader of a root; an empty name leaves the choice to Redline.

    Figures that the index computed with another reader are updated at the next indexing; session pages follow
    immediately.
    """

    root = forms.ModelChoiceField(
        Root.objects.filter(configured=True),
        error_messages={"invalid_choice": "That folder is no longer searched."},
    )
    reader = CheckedField(lambda name: reader_named(name).name, required=False)

    def save(self) -> None:
        root, reader = self.cleaned_data["root"], self.cleaned_data["reader"]
        Root.objects.filter(pk=root.pk).update(chosen_reader=reader)
        Session.objects.filter(root=root, reader="").exclude(read_as=reader).update(read_as="")


class RereadForm(SettingForm):
    """Reads a session again. If that fails, the reason is recorded instead of raised."""

    session = forms.ModelChoiceField(
        Session.objects.shown().select_related("root"),
        error_messages=dict.fromkeys(("required", "invalid_choice"), "That session is not known."),
    )

    def save(self) -> None:
        session = self.cleaned_data["session"]
        try:
            index_file(session.path)
        except RedlineError as fault:
            Session.objects.filter(pk=session.pk).update(fault=fault.message)


def _directory(text: str) -> str:
    """The real path of the directory that a text names. Raises BadInput `no_such_root`."""
    whole = real_path(named_directory(text, "no_such_root"))
    if not whole.is_dir():
        raise BadInput("no_such_root", f"{whole} is not a directory.")
    if whole == whole.parent:
        raise BadInput("no_such_root", f"{whole} has all files of this computer. Give a folder with sessions.")
    if fault := fault_of_root(whole):
        raise BadInput("no_such_root", fault)
    return str(whole)


def _window(text: str) -> int:
    """A context window, with or without separators of thousands. Raises BadInput `no_window`."""
    digits = re.sub(r"[ ,_\u00a0\u202f]", "", text)
    tokens = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else 0
    if not SMALLEST_WINDOW <= tokens <= LARGEST_WINDOW:
        raise BadInput(
            "no_window",
            f"A window is a number of tokens from {SMALLEST_WINDOW:,} to {LARGEST_WINDOW:,}, such as 200,000.",
        )
    return tokens


class AddRootForm(SettingForm):
    """Adds a directory to those that are searched for sessions. The next scan, within a minute, finds them."""

    path = CheckedField(_directory, max_length=4_000, label="Folder")
    agent = forms.ChoiceField(
        choices=[("", "detected by path"), *((key, agent.label) for key, agent in AGENTS.items())],
        required=False,
        label="Agent",
    )

    def clean_path(self) -> str:
        path: str = self.cleaned_data["path"]
        if Root.objects.filter(path=path, configured=True).exists():
            raise forms.ValidationError(f"{path} is searched already.")
        return path

    @transaction.atomic
    def save(self) -> None:
        chosen = {"agent": self.cleaned_data["agent"], "added": True}
        Root.objects.update_or_create(path=self.cleaned_data["path"], defaults=chosen)
        configured_roots()


class _AddedRootForm(SettingForm):
    """Changes a root that was added on this page."""

    root = forms.ModelChoiceField(
        Root.objects.filter(added=True),
        error_messages={"invalid_choice": "That folder was not added here, so it cannot be changed here."},
    )

    def clean_root(self) -> Root:
        root: Root = self.cleaned_data["root"]
        if is_in_configuration(root):
            raise forms.ValidationError(f"{root.path} is in your configuration: change it there.")
        return root


class RenameRootForm(_AddedRootForm):
    """Gives a root a name; an empty name removes it."""

    name = forms.CharField(max_length=NAME_LENGTH, required=False)

    def save(self) -> None:
        name = " ".join(self.cleaned_data["name"].split())
        Root.objects.filter(pk=self.cleaned_data["root"].pk).update(name=name)


class RemoveRootForm(_AddedRootForm):
    """Removes a root from those that are searched, and its sessions from the pages.

    Its files are not touched, and the records about them are kept.
    """

    @transaction.atomic
    def save(self) -> None:
        Root.objects.filter(pk=self.cleaned_data["root"].pk).update(added=False, name="")
        configured_roots()


class WindowForm(SettingForm):
    """Sets the context window of a model for all its sessions; an empty number withdraws the choice."""

    model = forms.CharField(max_length=500, strip=False)
    tokens = CheckedField(_window, required=False)

    @transaction.atomic
    def save(self) -> None:
        model, tokens = self.cleaned_data["model"], self.cleaned_data["tokens"]
        if tokens:
            ChosenWindow.objects.update_or_create(model=model, defaults={"tokens": tokens})
        else:
            ChosenWindow.objects.filter(model=model).delete()
        context_window_lookup.refresh_windows(context_window_lookup.ContextWindowLookup())


class SettingsPage(NamedTuple):
    """A page of the settings; its tab, its route and its template have the same name."""

    shown: Callable[[], dict[str, Any]]
    """Its data, by the names that its template uses."""
    forms: Mapping[str, tuple[type[SettingForm], str]] = {}
    """Its forms by action, each with the id of its section."""


PAGES: Final = {
    "general": SettingsPage(
        general,
        {
            "add-root": (AddRootForm, "folders"),
            "reader": (RootReaderForm, "folders"),
            "rename-root": (RenameRootForm, "folders"),
            "remove-root": (RemoveRootForm, "folders"),
        },
    ),
    "windows": SettingsPage(windows, {"window": (WindowForm, "windows")}),
    "browser": SettingsPage(browser),
    "advanced": SettingsPage(advanced, {"reread": (RereadForm, "unreadable")}),
}


@require_http_methods(["GET", "HEAD", "POST"])
def settings_page(request: HttpRequest, tab: str = "general") -> HttpResponse:
    """A page of the settings. A POST carries out the form that it names."""
    page, fault, form = PAGES[tab], None, None
    if request.method == "POST":
        kind, section = page.forms.get(request.POST.get("do", ""), (UnknownForm, ""))
        form = kind(request.POST)
        if form.is_valid():
            form.save()
            messages.success(request, f"saved {timezone.localtime():%H:%M}, in force now", extra_tags="saved")
            return redirect(f"{request.path}#{section}")
        fault = FormInvalid(form)
    context = {
        "shown": page.shown(),
        "tab": tab,
        # Variables that set nothing, each with the setting that was probably meant.
        "misspelt": settings.REDLINE_MISSPELT,
        "faults": settings.REDLINE_FAULTS,
        "adding": form if isinstance(form, AddRootForm) else AddRootForm(),
        "fault": fault,
        "active_nav": "settings",
    }
    return render(request, f"settings_page/{tab}.html", context, status=status_of(fault))
