"""The settings in effect and their sources: configuration, roots, windows of models, what cannot be read."""

from __future__ import annotations

import ast
import inspect
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.db import connection
from django.db.models import Count, Q, Sum

from sessions_app.agents.registry import AGENTS, READERS, model_windows
from sessions_app.disk.discovery import fault_of_root
from sessions_app.index.context_window_lookup import chosen_windows, configured_windows
from sessions_app.index.indexer import index_file
from sessions_app.index.roots import is_in_configuration, managed_path, shown_roots
from sessions_app.models import Root, Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.model_facts import window_of
from sessions_app.sessionlog.sourced_value import DEFAULT_SOURCE, SourcedValue

SHOWN: Final = 200
"""The maximum number of rows of a section; the others are counted."""
VALUE_LENGTH: Final = 300
UNKNOWN_IN_SNIPPET: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Field(SourcedValue[list[str]]):
    """One field of the configuration; its value as text, one for each item of a list or table."""

    name: str
    meaning: str


class EffectiveRoot(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class AgentFile:
    """An agent's own settings file, with the settings that concern compaction."""

    path: str
    there: bool
    fault: str
    compaction: list[tuple[str, str]]


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


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of the software. The size of the database, including its write-ahead log, is in bytes."""

    redline: str
    python: str
    database: str
    size: int


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """The data of the settings page."""

    faults: list[str]
    misspelt: list[tuple[str, str]]
    """Variables that set nothing, each with the setting that was probably meant."""
    fields: list[Field]
    file: str
    file_there: bool
    data_directory: str
    roots: list[EffectiveRoot]
    readers: list[str]
    agent_files: list[AgentFile]
    models: list[ModelWindow]
    snippet: str
    """Lines for redline.toml that configure the unknown windows."""
    unreadable: list[Session]
    unreadable_count: int
    damaged: int
    versions: Versions


def effective_settings(home: Path) -> EffectiveSettings:
    """All data of the page. Raises SystemFailure."""
    windows = model_windows(home)
    models = _models(windows)
    file = settings.REDLINE_DATA_DIR / settings.REDLINE_FILE_NAME
    shown = Session.objects.shown()
    unreadable = shown.exclude(fault="").order_by("root", "relative_path")
    return EffectiveSettings(
        faults=list(settings.REDLINE_FAULTS),
        misspelt=list(settings.REDLINE_MISSPELT),
        fields=_fields(),
        file=str(file),
        file_there=file.exists(),
        data_directory=str(settings.REDLINE_DATA_DIR),
        roots=_roots(shown_roots()),
        readers=list(READERS),
        agent_files=_agent_files(home),
        models=models,
        snippet=_snippet([model.name for model in models if model.window is None]),
        unreadable=list(unreadable.for_display()[:SHOWN]),
        unreadable_count=unreadable.count(),
        damaged=shown.filter(damage_count__gt=0, fault="").count(),
        versions=_versions(),
    )


# ---- the configuration -------------------------------------------------------------------------------------


def _fields() -> list[Field]:
    configuration = settings.REDLINE
    described = _descriptions(type(configuration))
    fields = []
    for name in type(configuration).model_fields:
        source, *merged = settings.REDLINE_SOURCES.get(name) or [DEFAULT_SOURCE]
        meaning = " ".join(described.get(name, "").replace("`", "").split())
        value = _in_words(getattr(configuration, name))
        fields.append(Field(value, source, tuple(merged), name=name, meaning=meaning))
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


def _roots(roots: list[Root]) -> list[EffectiveRoot]:
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
            _fault_of(Path(root.path)),
            *sums.get(root.pk, ()),
        )
        for root in roots
    ]


def _source_of(root: Root) -> str:
    if not is_in_configuration(root):
        return "added"
    return "configured" if settings.REDLINE_SOURCES.get("roots") else "default"


def _fault_of(path: Path) -> str:
    return fault_of_root(path) or ("" if path.exists() else "This directory does not exist yet.")


def _agent_files(home: Path) -> list[AgentFile]:
    found = [agent.settings.user_file(home) for agent in AGENTS.values()]
    return [
        AgentFile(
            str(file.path),
            file.exists,
            file.fault,
            [(name, json.dumps(value)[:VALUE_LENGTH]) for name, value in file.compaction.items()][:SHOWN],
        )
        for file in found
        if file is not None
    ]


def choose_root_reader(root: Root, reader: str) -> None:
    """Store the user's choice of a reader for a root; "" leaves the choice to Redline again.

    Figures that the index computed with another reader are updated at the next indexing; session pages follow
    immediately.
    """
    Root.objects.filter(pk=root.pk).update(chosen_reader=reader)
    Session.objects.filter(root=root, reader="").exclude(read_as=reader).update(read_as="")


# ---- models ------------------------------------------------------------------------------------------------


def _models(agents: Mapping[str, int]) -> list[ModelWindow]:
    named = Session.objects.shown().with_model()
    counted = dict(named.order_by("model").values_list("model").annotate(Count("pk")))
    configured, chosen = configured_windows(), chosen_windows()
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


# ---- unreadable sessions -----------------------------------------------------------------------------------


def try_reindex(session: Session) -> None:
    """Try to read a session again. If that fails, the reason is recorded, and nothing is raised."""
    try:
        index_file(session.path)
    except RedlineError as fault:
        Session.objects.filter(pk=session.pk).update(fault=fault.message)


def _versions() -> Versions:
    database = connection.settings_dict
    path = Path(str(database["NAME"]))
    files = [path, path.with_name(f"{path.name}-wal")]
    return Versions(
        redline=version("redline"),
        python=platform.python_version(),
        database=str(path),
        size=sum(file.stat().st_size for file in files if file.is_file()),
    )
