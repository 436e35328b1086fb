"""The settings page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from django import forms
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from sessions_app.agents.registry import AGENTS, reader_named
from sessions_app.disk.discovery import fault_of_root
from sessions_app.disk.files import real_path
from sessions_app.index.context_window_lookup import ContextWindowLookup, refresh_windows
from sessions_app.index.roots import configured_roots, is_in_configuration
from sessions_app.models import ChosenWindow, Root, Session
from sessions_app.sessionlog.errors import BadInput
from sessions_app.web.pages import CheckedField, FormInvalid, redirect, status_of

from .effective_settings import choose_root_reader, effective_settings, try_reindex

# WAS sessions_app/settings_page/forms: """The forms of the settings page: roots beside those of the configuration, readers, and context windows."""


NAME_LENGTH: Final = 80
SMALLEST_WINDOW: Final = 1_000
LARGEST_WINDOW: Final = 100_000_000


class SettingForm(forms.Form):
    """A form of the page; `save` carries it out."""

    def save(self) -> None:
        raise NotImplementedError


class RootReaderForm(SettingForm):
    """Chooses the reader of a root; an empty name leaves the choice to Redline."""

    root = forms.ModelChoiceField(
        Root.objects.filter(configured=True),
        error_messages={"invalid_choice": "That root is no longer configured."},
    )
    reader = CheckedField(lambda name: reader_named(name).name, required=False)

    def save(self) -> None:
        choose_root_reader(self.cleaned_data["root"], self.cleaned_data["reader"])


class RereadForm(SettingForm):
    """Reads a session again."""

    session = forms.ModelChoiceField(
        Session.objects.shown().select_related("root"),
        error_messages=dict.fromkeys(("required", "invalid_choice"), "That session is not known."),
    )

    def save(self) -> None:
        try_reindex(self.cleaned_data["session"])


def _directory(text: str) -> str:
    """The real path of the directory that a text names. Raises BadInput `no_such_root`."""
    try:
        path = Path(text).expanduser()
    except RuntimeError as unknown:
        raise BadInput("no_such_root", f"{text}: {unknown}") from unknown
    if "\0" in text or not path.is_absolute():
        raise BadInput("no_such_root", "Give the whole path of a directory, beginning with / or ~.")
    whole = real_path(path)
    if not whole.is_dir():
        raise BadInput("no_such_root", f"{whole} is not a directory.")
    if whole == whole.parent:
        raise BadInput("no_such_root", f"{whole} has all files of this computer. Give a directory with sessions.")
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

    path = CheckedField(_directory, max_length=4_000, label="Directory")
    agent = forms.ChoiceField(
        choices=[("", "detected by path"), *((key, agent.label) for key, agent in AGENTS.items())],
        required=False,
        label="Agent",
    )

    def clean_path(self) -> str:
        path: str = self.cleaned_data["path"]
        if Root.objects.filter(path=path, configured=True).exists():
            raise forms.ValidationError(f"{path} is a root already.")
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
        error_messages={"invalid_choice": "That root was not added here, so it cannot be changed here."},
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
        refresh_windows(ContextWindowLookup())


FORMS: Final[dict[str, tuple[type[SettingForm], str]]] = {
    "reader": (RootReaderForm, "roots"),
    "add-root": (AddRootForm, "roots"),
    "rename-root": (RenameRootForm, "roots"),
    "remove-root": (RemoveRootForm, "roots"),
    "window": (WindowForm, "windows"),
    "reread": (RereadForm, "unreadable"),
}
"""The forms of the page by action, each with its section."""


@require_http_methods(["GET", "HEAD", "POST"])
def settings(request: HttpRequest) -> HttpResponse:
    """The settings in effect and their sources; roots and windows can be changed, and a session be read again."""
    fault, form = None, None
    if request.method == "POST":
        kind, section = FORMS.get(request.POST.get("do", ""), (RereadForm, "unreadable"))
        form = kind(request.POST)
        if form.is_valid():
            form.save()
            return redirect(reverse("sessions:settings", fragment=section))
        fault = FormInvalid(form)
    adding = form if isinstance(form, AddRootForm) else AddRootForm()
    context = {"shown": effective_settings(Path.home()), "adding": adding, "fault": fault, "active_nav": "settings"}
    return render(request, "settings_page/settings.html", context, status=status_of(fault))
