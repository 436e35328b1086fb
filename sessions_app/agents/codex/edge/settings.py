"""EDGE: the settings of Codex that decide when it compacts: `config.toml` in its directory, and the profile it names.

Codex compacts when the context reaches `model_auto_compact_token_limit`, at most 90% of the model's window, and 90% of
it without that setting.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sessions_app.agents import base
from sessions_app.agents.edge.json_file import read_json_file, read_toml_file
from sessions_app.agents.pure import fields
from sessions_app.agents.pure.hooks import hook_commands

HOME_VARIABLE: Final = "CODEX_HOME"
DIRECTORY: Final = ".codex"
LIMIT: Final = "model_auto_compact_token_limit"
WINDOW: Final = "model_context_window"
SHOWN: Final = (LIMIT, WINDOW)
HOOK_EVENTS: Final = ("PreCompact", "PostCompact")


def home_directory(home: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """The directory of Codex's own files."""
    return base.named_directory(HOME_VARIABLE, home / DIRECTORY, environment)


class CodexSettings(base.Settings):
    """Reads the settings of Codex, which are the same for all projects and models."""

    def for_project(self, cwd: str, home: Path, model: tuple[str, str] | None = None) -> base.AgentSettings:
        found = self.user_file(home)
        files: tuple[base.SettingsFile, ...] = (found,) if found.exists else ()
        in_force = base.settings_in_force(
            _SETTINGS, [base.SettingsSection(file.path, file.compaction) for file in files]
        )
        budget = base.CompactionBudget(reserve_percent=10, limit=_count(in_force[0].value))
        # The file that names the commands which Codex calls, if it names one for compactions.
        named = read_json_file(home_directory(home) / "hooks.json")
        hooks = hook_commands(named.values, HOOK_EVENTS)
        if hooks or named.fault:
            files = (*files, base.SettingsFile(named.path, True, {}, named.fault, hooks=hooks))
        return base.AgentSettings(files, budget, None, in_force=in_force)

    def user_file(self, home: Path) -> base.SettingsFile:
        found = read_toml_file(home_directory(home) / "config.toml")
        values = _effective(found.values)
        compaction = {name: values[name] for name in SHOWN if name in values}
        return base.SettingsFile(found.path, found.exists, compaction, found.fault)

    def models(self, home: Path) -> Iterator[base.ConfiguredModel]:
        """The model in use, with the window that the user has set."""
        values = _effective(read_toml_file(home_directory(home) / "config.toml").values)
        if (model := fields.text_or_none(values, "model")) is not None:
            yield base.ConfiguredModel(model, _count(values.get(WINDOW)))


def _effective(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values with those of the chosen profile."""
    name = fields.text_or_none(values, "profile")
    return values if name is None else {**values, **fields.mapping(fields.mapping(values, "profiles"), name)}


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 < value < 2**31 else None


_SETTINGS: Final = (
    base.CompactionSetting(
        LIMIT,
        "The tokens of the context from which on it compacts; at most 90% of the model’s window.",
        "90% of the window",
        lambda value: _count(value) is not None,
        200_000,
        (),
        is_toml=True,
    ),
    base.CompactionSetting(
        WINDOW,
        "The tokens of the model’s window.",
        "what it knows of the model",
        lambda value: _count(value) is not None,
        272_000,
        (),
        is_toml=True,
    ),
)
