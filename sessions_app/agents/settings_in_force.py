"""The settings of an agent's compaction that are in force, from what its files say.

An agent names its settings once, with defaults (`CompactionSetting`). Each is looked for in its files, in their order;
the first usable value counts, as in the agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

TOKENS_LIMIT: Final = 2**31
EXAMPLE_LENGTH: Final = 200
"""A longer value is not repeated in a line to paste: the example is there instead."""


def is_switch(value: object) -> bool:
    return isinstance(value, bool)


def is_token_count(value: object) -> bool:
    return type(value) is int and 0 <= value < TOKENS_LIMIT


class CompactionSetting(NamedTuple):
    """A setting that an agent knows."""

    name: str
    meaning: str
    default: str
    """What applies without a value in a file: as it would be written, or in words."""
    is_usable: Callable[[object], bool]
    example: object
    """A value for the line that sets it, if no file has one."""
    within: tuple[str, ...] = ("compaction",)
    """The keys of the objects that it is in."""
    is_toml: bool = False


class SettingsSection(NamedTuple):
    """What a file says of compaction, or of a part of it."""

    path: Path
    values: Mapping[str, Any]
    within: tuple[str, ...] | None = None
    """The keys of the objects that the values are in; None for those of each setting."""


class SettingInForce(NamedTuple):
    """A setting with its value, and the file that has it."""

    setting: CompactionSetting
    value: object = None
    """As it is recorded; None for the default."""
    section: SettingsSection | None = None
    """What has the value; None for the default."""
    ignored: tuple[Path, ...] = ()
    """The files before that whose value cannot be used."""

    @property
    def line(self) -> str:
        """The line that sets it: a switch turned over, another value as it is now, or an example."""
        value = self.setting.example
        if isinstance(self.value, bool):
            value = not self.value
        elif self.value is not None and len(json.dumps(self.value)) <= EXAMPLE_LENGTH:
            value = self.value
        within = self.section.within if self.section is not None else None
        return line_of(self.setting, value, self.setting.within if within is None else within)


def line_of(setting: CompactionSetting, value: object, within: Sequence[str]) -> str:
    """The line of a file that gives a setting this value, inside the objects with these keys."""
    if setting.is_toml:
        return f"{setting.name} = {json.dumps(value)}"
    line = f"{json.dumps(setting.name)}: {json.dumps(value)}"
    for key in reversed(within):
        line = f"{json.dumps(key)}: {{{line}}}"
    return line


def settings_in_force(
    settings: Iterable[CompactionSetting], sections: Sequence[SettingsSection]
) -> tuple[SettingInForce, ...]:
    """Each setting with the first usable value of the sections, which are in the order of precedence."""
    return tuple(_in_force(setting, sections) for setting in settings)


def _in_force(setting: CompactionSetting, sections: Sequence[SettingsSection]) -> SettingInForce:
    ignored: list[Path] = []
    for section in sections:
        if setting.name not in section.values:
            continue
        value = section.values[setting.name]
        if setting.is_usable(value):
            return SettingInForce(setting, value, section, tuple(ignored))
        ignored.append(section.path)
    return SettingInForce(setting, ignored=tuple(ignored))
