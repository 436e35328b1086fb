"""The page of a session's compaction settings: what is in force, where it comes from, and the line that changes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.conf import settings

from compaction_app.core import parameters as normal
from compaction_app.planning.effective_parameters import (
    DEFAULT_SOURCE,
    EffectiveParameters,
    effective_parameters,
)
from sessions_app.agents.agent_settings import AgentSettings
from sessions_app.agents.registry import agent_with_reader
from sessions_app.agents.settings_in_force import CompactionSetting, SettingInForce
from sessions_app.models import Session

VALUE_LENGTH: Final = 300
"""Characters of a value that are shown."""
HOOKS_SHOWN: Final = 50
_PLAN: Final = {
    "compression_ratio": CompactionSetting(
        "compression_ratio",
        "The fraction of the tokens that a plan keeps.",
        f"{normal.DEFAULT_RATIO:g}",
        lambda value: normal.compression_ratio(value) == value,
        normal.DEFAULT_RATIO,
    ),
    "preserve_recent": CompactionSetting(
        "preserve_recent",
        "How many of the last entries are never deleted.",
        f"{normal.DEFAULT_PRESERVE_RECENT}",
        lambda value: isinstance(value, int | float),
        normal.DEFAULT_PRESERVE_RECENT,
    ),
    "query": CompactionSetting(
        "query",
        "What a planner keeps because it matters.",
        "your last message",
        lambda value: isinstance(value, str),
        "the failing test",
    ),
}


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting as it is shown. `source` is a path; empty for the default."""

    name: str
    """With the keys of the objects that it is in, separated by dots."""
    meaning: str
    value: str
    default: str
    source: str
    ignored: tuple[str, ...]
    """The files whose value cannot be used."""
    line: str
    """The line that changes it; empty if no file does."""
    paste_into: str
    """The file for that line."""

    @property
    def is_default(self) -> bool:
        return not self.source


@dataclass(frozen=True, slots=True)
class SettingsView:
    """The data of the page."""

    agent: str
    of_agent: list[SettingRow]
    of_plans: list[SettingRow]
    switched_off_in: str
    """The file that disables automatic compaction; empty if it is on, or if there is none."""
    threshold: int | None
    """The tokens of the context above which it is due; None if the window is unknown."""
    hooks: list[tuple[str, tuple[str, ...]]]
    """What takes part in a compaction, by the file that names it."""
    own_hooks: list[str]
    """The modules of Redline's own hooks."""
    files: list[str]
    """The files that were read, in their order."""
    faults: tuple[str, ...]

    @property
    def compacts_automatically(self) -> bool:
        """Whether the agent compacts at all, and is not told not to."""
        return bool(self.of_agent) and not self.switched_off_in


def view_settings(session: Session, home: Path) -> SettingsView:
    """The settings in force for a session's project and model."""
    agent = agent_with_reader(session.read_as) or session.agent
    found = agent.settings(session.cwd, home, (session.provider, session.model))
    parameters = effective_parameters(session.agent.settings(session.cwd, home), {})
    user_file = agent.user_settings(home).path
    window = session.window
    hooks = [(str(file.path), file.hooks[:HOOKS_SHOWN]) for file in found.files if file.hooks]
    return SettingsView(
        agent=agent.label,
        of_agent=[_row(setting, user_file) for setting in found.in_force],
        of_plans=_rows_of_plans(parameters, found, user_file),
        switched_off_in=str(found.switched_off_in or ""),
        threshold=max(0, window - found.budget.reserve(window)) if window and found.in_force else None,
        hooks=hooks,
        own_hooks=list(settings.REDLINE.hooks),
        files=[str(file.path) for file in found.files],
        faults=tuple(f"{file.path}: {file.fault}" for file in found.files if file.fault),
    )


def _row(found: SettingInForce, user_file: Path) -> SettingRow:
    setting, section = found.setting, found.section
    return SettingRow(
        ".".join((*setting.within, setting.name)),
        setting.meaning,
        _shown(found.value) if section is not None else setting.default,
        setting.default,
        str(section.path) if section is not None else "",
        tuple(map(str, found.ignored)),
        found.line,
        str(section.path if section is not None else user_file),
    )


def _rows_of_plans(parameters: EffectiveParameters, found: AgentSettings, user_file: Path) -> list[SettingRow]:
    return [_row_of_plans(name, parameters, found, user_file) for name in _PLAN]


def _row_of_plans(name: str, parameters: EffectiveParameters, found: AgentSettings, user_file: Path) -> SettingRow:
    """A parameter of plans. The agent uses its default for a value that it cannot use, and reads no other file."""
    setting, source = _PLAN[name], parameters.sources[name]
    is_default = source == DEFAULT_SOURCE
    values: Mapping[str, object] = {} if is_default else parameters.values
    in_force = SettingInForce(setting, values.get(name))
    return SettingRow(
        name,
        setting.meaning,
        setting.default if is_default else _shown(values[name]),
        setting.default,
        "" if is_default else source,
        tuple(str(file.path) for file in found.files if is_default and name in file.parameters),
        in_force.line if found.parameters_within is not None else "",
        str(user_file) if is_default else source,
    )


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"{text[:VALUE_LENGTH]}…" if len(text) > VALUE_LENGTH else text
