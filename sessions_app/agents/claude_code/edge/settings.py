"""EDGE: the settings of Claude Code that decide when it compacts, and the windows of its models.

    <project>/.claude/settings.local.json      read in this order; of a setting, the first file that has it counts
    <project>/.claude/settings.json
    <configuration>/settings.json              ~/.claude, or CLAUDE_CONFIG_DIR

`env` in a file sets variables of the client. What else is in its environment is not known here.
With a window W, the client compacts before a request from W - 33,000 tokens on, or from a percentage of W - 20,000 on
if that is less. Without one, recent versions wait until the provider refuses the request; older ones take the window of
the model. Redline takes it too: it is better to plan before the client compacts than after.
"""

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from sessions_app.agents import base
from sessions_app.agents.edge.json_file import JsonFile, existing_files, read_json_file
from sessions_app.agents.pure import fields
from sessions_app.agents.pure.hooks import hook_commands
from sessions_app.sessionlog.model_facts import KNOWN_WINDOWS

DIRECTORY: Final = ".claude"
CONFIG_VARIABLE: Final = "CLAUDE_CONFIG_DIR"
DEFAULT_WINDOW: Final = KNOWN_WINDOWS["claude-"]
LONG_MARK: Final = "[1m]"
"""The suffix of a model's name that requests the long window; sessions record the name without it."""
LONG_WINDOW: Final = 1_000_000
LEAST_WINDOW: Final = 100_000
"""The minimum window; smaller ones in the settings are raised to it."""
RESERVE: Final = 33_000
PERCENT_RESERVE: Final = 20_000
WINDOW: Final = "autoCompactWindow"
ENABLED: Final = "autoCompactEnabled"
WINDOW_VARIABLE: Final = "CLAUDE_CODE_AUTO_COMPACT_WINDOW"
PERCENT_VARIABLE: Final = "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"
OFF_VARIABLES: Final = ("DISABLE_AUTO_COMPACT", "DISABLE_COMPACT")
PROJECT_FILES: Final = (f"{DIRECTORY}/settings.local.json", f"{DIRECTORY}/settings.json")
HOOK_EVENTS: Final = ("PreCompact", "PostCompact")
VARIABLES: Final = (WINDOW_VARIABLE, PERCENT_VARIABLE, *OFF_VARIABLES)


def config_directory(home: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """The directory of the client's own files."""
    return base.named_directory(CONFIG_VARIABLE, home / DIRECTORY, environment)


class ClaudeCodeSettings(base.Settings):
    def for_project(self, cwd: str, home: Path, model: tuple[str, str] | None = None) -> base.AgentSettings:
        found = existing_files(cwd, PROJECT_FILES, [config_directory(home) / "settings.json"])
        files = tuple(map(_settings_file, found))
        in_use = model[1] if model is not None else ""
        window = LONG_WINDOW if in_use in (one.id for one in self.models(home)) else DEFAULT_WINDOW
        in_force = base.settings_in_force(
            _SETTINGS, [base.SettingsSection(found.path, found.compaction) for found in files]
        )
        by_name = {one.setting.name: one for one in in_force}
        reserve = window - _threshold(by_name, window)
        # A variable disables automatic compaction, whatever the setting is.
        offs = [(file.path, str(file.compaction.get(name, "")).lower()) for file in files for name in OFF_VARIABLES]
        disabling = (path for path, value in offs if value in ("1", "true"))
        disabled_by = next(disabling, by_name[ENABLED].switched_off_in)
        return base.AgentSettings(files, base.CompactionBudget(reserve), disabled_by, in_force=in_force)

    def user_file(self, home: Path) -> base.SettingsFile:
        return _settings_file(read_json_file(config_directory(home) / "settings.json"))

    def models(self, home: Path) -> Iterator[base.ConfiguredModel]:
        """The model that the user's settings ask for with the long window."""
        model = fields.text(read_json_file(config_directory(home) / "settings.json").values, "model")
        if model.endswith(LONG_MARK):
            yield base.ConfiguredModel(model.removesuffix(LONG_MARK), LONG_WINDOW)


def _settings_file(found: JsonFile) -> base.SettingsFile:
    variables = fields.mapping(found.values, "env")
    shown = {name: found.values[name] for name in (WINDOW, ENABLED) if name in found.values}
    shown |= {name: variables[name] for name in VARIABLES if name in variables}
    hooks = hook_commands(found.values, HOOK_EVENTS)
    return base.SettingsFile(found.path, found.exists, shown, found.fault, hooks=hooks)


def _threshold(in_force: Mapping[str, base.SettingInForce], model_window: int) -> int:
    """The number of tokens above which the client compacts."""
    chosen = _number(in_force[WINDOW_VARIABLE].value) or _number(in_force[WINDOW].value)
    window = min(model_window, max(int(chosen), LEAST_WINDOW)) if chosen else model_window
    threshold = window - RESERVE
    percent = _number(in_force[PERCENT_VARIABLE].value)
    if chosen and percent:
        threshold = min(threshold, int((window - PERCENT_RESERVE) * percent / 100))
    return threshold - 1  # it compacts from there on


def _number(value: object) -> float:
    """A positive number, also if it is given as text; 0 if the value is not one."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return 0
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return 0
    return number if 0 < number < math.inf else 0


def _is_variable(value: object) -> bool:
    return isinstance(value, str | bool | int)


def _is_number(value: object) -> bool:
    return _number(value) > 0


_SETTINGS: Final = (
    base.CompactionSetting(
        ENABLED, "Whether it compacts automatically.", "true", base.is_switch, example=False, within=()
    ),
    *(
        base.CompactionSetting(
            name, "Disables automatic compaction if it is 1 or true.", "not set", _is_variable, "1", ("env",)
        )
        for name in OFF_VARIABLES
    ),
    base.CompactionSetting(
        WINDOW,
        f"The window in tokens: it compacts at {RESERVE:,} less. Under {LEAST_WINDOW:,} it counts as that.",
        "recent versions wait until the provider refuses a request",
        _is_number,
        200_000,
        (),
    ),
    base.CompactionSetting(WINDOW_VARIABLE, "The same, and before it.", "not set", _is_number, "200000", ("env",)),
    base.CompactionSetting(
        PERCENT_VARIABLE,
        f"The percentage of the window less {PERCENT_RESERVE:,} at which it compacts, if that is earlier. "
        "It has no effect without a window.",
        "not set",
        _is_number,
        "80",
        ("env",),
    ),
)
