"""EDGE to the agents' own settings and models.

A session's `cwd` is data. The one file that is read there is the project's settings, at most 1 MB, never
written, and no link out of the project is followed; what is not a readable JSON object is passed over
and reported as a fault of that source.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sessions_app.sessionlog.jsjson import parse
from sessions_app.storage.nofollow import open_file, stat_file

from .registry import AGENTS

SIZE_LIMIT: Final = 1_000_000
DEFAULT_RESERVE: Final = 16_384
"""Tokens that an agent keeps free of the window, unless its settings say otherwise."""
AGENT_DIRECTORIES: Final = {key: agent.directory for key, agent in AGENTS.items()}


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """One settings file of an agent that is there: its object, or why it cannot be used."""

    path: Path
    values: Mapping[str, Any]
    fault: str = ""


def settings_files(cwd: str, home: Path) -> list[SettingsFile]:
    """The settings files that are there, the one that counts most first: the project's, then the user's."""
    found = []
    if Path(cwd).is_absolute() and "\0" not in cwd:
        project = Path(cwd)
        found += [
            _read_object(project / directory / "settings.json", inside=project)
            for directory in AGENT_DIRECTORIES.values()
        ]
    found += [
        _read_object(home / directory / "agent" / "settings.json") for directory in AGENT_DIRECTORIES.values()
    ]
    return [file for file in found if file is not None]


def model_windows(home: Path) -> dict[str, int]:
    """Context windows in tokens by model id, as the agents' `models.json` files give them."""
    windows: dict[str, int] = {}
    for directory in reversed(AGENT_DIRECTORIES.values()):
        found = _read_object(home / directory / "agent" / "models.json")
        for model in _models(found.values) if found is not None else ():
            name, window = model.get("id"), model.get("contextWindow")
            # JSON's true is an integer to Python.
            if isinstance(name, str) and type(window) is int and window > 0:
                windows[name] = window
    return windows


def _models(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The models of every provider; what has another shape is passed over."""
    providers = values.get("providers")
    for provider in providers.values() if isinstance(providers, dict) else ():
        models = provider.get("models") if isinstance(provider, dict) else None
        for model in models if isinstance(models, list) else ():
            if isinstance(model, dict):
                yield model


def _read_object(path: Path, inside: Path | None = None) -> SettingsFile | None:
    """The object in a file, which may be a link, but not to a place outside of `inside`; None if there is none."""
    try:
        real = Path(os.path.realpath(path))
        if inside is not None and not real.is_relative_to(os.path.realpath(inside)):
            return SettingsFile(path, {}, f"it is a link out of {inside}")
        data = _read_small(real)
    except (FileNotFoundError, NotADirectoryError, UnicodeEncodeError):
        # A name that cannot be encoded is the name of no file.
        return None
    except OSError as fault:
        return SettingsFile(path, {}, fault.strerror or str(fault))
    if len(data) > SIZE_LIMIT:
        return SettingsFile(path, {}, f"it is larger than {SIZE_LIMIT} bytes")
    try:
        values = parse(data)
    except ValueError as fault:
        return SettingsFile(path, {}, f"it is no JSON: {fault}")
    return (
        SettingsFile(path, values)
        if isinstance(values, dict)
        else SettingsFile(path, {}, "it is no JSON object")
    )


def _read_small(path: Path) -> bytes:
    # What a hostile cwd names could be a pipe or a device, and opening one is heard at its other end.
    _demand_file(stat_file(path))
    # Should it become one in between, it is still not waited for.
    descriptor = open_file(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        _demand_file(os.fstat(descriptor))
        return file.read(SIZE_LIMIT + 1)


def reserve_tokens(cwd: str, home: Path) -> int:
    """`reserveTokens` of the settings that are in force for a project."""
    for found in settings_files(cwd, home):
        section = found.values.get("compaction")
        reserve = section.get("reserveTokens") if isinstance(section, dict) else None
        if isinstance(reserve, int) and not isinstance(reserve, bool) and 0 <= reserve < 2**31:
            return reserve
    return DEFAULT_RESERVE


def switched_off_in(cwd: str, home: Path) -> Path | None:
    """The settings file in force for a project that keeps its agent from compacting by itself; None: none does."""
    for found in settings_files(cwd, home):
        section = found.values.get("compaction")
        enabled = section.get("enabled") if isinstance(section, dict) else None
        if isinstance(enabled, bool):
            return None if enabled else found.path
    return None


def _demand_file(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(0, "it is not a regular file")
