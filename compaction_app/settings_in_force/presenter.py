"""The page of a session's compaction settings: what is in force, where it comes from, and the line that changes it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
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
from sessions_app.agents.settings_in_force import CompactionSetting, SettingInForce
from sessions_app.models import Session

VALUE_LENGTH: Final = 300
"""Characters of a value that are shown."""
HOOKS_SHOWN: Final = 50
_PLAN: Final = (
    CompactionSetting(
        "compression_ratio",
        "The fraction of the tokens that a plan keeps.",
        f"{normal.DEFAULT_RATIO:g}",
        partial(normal.is_usable, "compression_ratio"),
        normal.DEFAULT_RATIO,
    ),
    CompactionSetting(
        "preserve_recent",
        "How many of the last entries are never deleted.",
        f"{normal.DEFAULT_PRESERVE_RECENT}",
        partial(normal.is_usable, "preserve_recent"),
        normal.DEFAULT_PRESERVE_RECENT,
    ),
    CompactionSetting(
        "query",
        "What matters: a model keeps it, and the embedded planner keeps what its words find.",
        "your last message, for a model; nothing, for the embedded planner",
        partial(normal.is_usable, "query"),
        "the failing test",
    ),
)


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
    hidden: tuple[str, ...]
    """The files whose value is not read, because one that cannot be used comes before it."""
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
    compacts_automatically: bool
    threshold: int | None
    """The tokens of the context above which it is due; None if it never is, or if the window is unknown."""
    hooks: list[tuple[str, tuple[str, ...]]]
    """What takes part in a compaction, by the file that names it."""
    own_hooks: list[str]
    """The modules of Redline's own hooks."""
    files: list[str]
    """The files that were read, in their order."""
    faults: tuple[str, ...]


def view_settings(session: Session, home: Path) -> SettingsView:
    """The settings in force for a session's project and model."""
    agent, found = session.continuing_agent, session.agent_settings(home)
    parameters = effective_parameters(found, {})
    user_file = agent.user_settings(home).path
    window = session.window
    hooks = [(str(file.path), file.hooks[:HOOKS_SHOWN]) for file in found.files if file.hooks]
    return SettingsView(
        agent=agent.label,
        of_agent=[_row(setting, user_file) for setting in found.in_force],
        of_plans=[_row_of_plans(setting, parameters, found, user_file) for setting in _PLAN],
        switched_off_in=str(found.switched_off_in or ""),
        compacts_automatically=found.compacts_automatically,
        threshold=max(0, window - found.budget.reserve(window)) if window and found.compacts_automatically else None,
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
        (),
        found.line,
        str(section.path if section is not None else user_file),
    )


def _row_of_plans(
    setting: CompactionSetting, parameters: EffectiveParameters, found: AgentSettings, user_file: Path
) -> SettingRow:
    name, source = setting.name, parameters.sources[setting.name]
    value, refused = parameters.values.get(name), parameters.refused.get(name)
    return SettingRow(
        name,
        setting.meaning,
        # An empty query is none.
        _shown(value) if value not in (None, "") else setting.default,
        setting.default,
        "" if source == DEFAULT_SOURCE else source,
        () if refused is None else (str(refused),),
        () if refused is None else tuple(map(str, parameters.hidden[name])),
        SettingInForce(setting, value).line if found.parameters_within is not None else "",
        str(user_file) if source == DEFAULT_SOURCE else source,
    )


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"{text[:VALUE_LENGTH]}…" if len(text) > VALUE_LENGTH else text
