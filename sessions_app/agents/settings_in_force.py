"""The settings of an agent's compaction that are in force, from its files.

An agent defines its settings once, with defaults (`CompactionSetting`). Each is looked up in its files, in order of
precedence; the first usable value counts, as in the agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from sessions_app.sessionlog.sourced_value import SourcedValue, resolve

TOKENS_LIMIT: Final = 2**31
EXAMPLE_LENGTH: Final = 200
"""A longer value is not repeated in a line to paste: the example is there instead."""
TEXT_LENGTH: Final = 300
"""Characters of a value that are shown."""


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
    """The settings of compaction in a file, or some of them."""

    path: Path
    values: Mapping[str, Any]
    within: tuple[str, ...] | None = None
    """The keys of the objects that the values are in; None for those of each setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingInForce(SourcedValue[object]):
    """A setting with its value, or None for the default. The source is the path of a file, or a description."""

    setting: CompactionSetting
    within: tuple[str, ...] | None
    """The keys of the objects around its line; None if no file can set it."""

    @property
    def switched_off_in(self) -> Path | None:
        """The file that turns this switch off; None if it is on."""
        return Path(self.source) if self.value is False else None

    @property
    def name(self) -> str:
        """Its name with the keys of the objects that it is in, separated by dots."""
        return ".".join((*self.setting.within, self.setting.name))

    @property
    def text(self) -> str:
        """The value as text, which may be cut; the default without a value."""
        if not self.setting.is_usable(self.value):
            return self.setting.default
        text = self.value if isinstance(self.value, str) else json.dumps(self.value)
        return f"{text[:TEXT_LENGTH]}…" if len(text) > TEXT_LENGTH else text

    @property
    def line(self) -> str:
        """The line that sets it: a switch turned over, another value as it is, or an example; empty if no file can."""
        if self.within is None:
            return ""
        value = self.setting.example
        if isinstance(self.value, bool):
            value = not self.value
        elif self.value is not None and len(json.dumps(self.value)) <= EXAMPLE_LENGTH:
            value = self.value
        if self.setting.is_toml:
            return f"{self.setting.name} = {json.dumps(value)}"
        line = f"{json.dumps(self.setting.name)}: {json.dumps(value)}"
        for key in reversed(self.within):
            line = f"{json.dumps(key)}: {{{line}}}"
        return line


def settings_in_force(
    settings: Iterable[CompactionSetting], sections: Sequence[SettingsSection]
) -> tuple[SettingInForce, ...]:
    """Each setting with the first usable value of the sections, which are in the order of precedence."""
    return tuple(_in_force(setting, sections) for setting in settings)


def _in_force(setting: CompactionSetting, sections: Sequence[SettingsSection]) -> SettingInForce:
    default = SettingInForce(None, setting=setting, within=setting.within)
    offers = (
        replace(
            default,
            value=value if setting.is_usable(value := section.values[setting.name]) else None,
            source=str(section.path),
            within=setting.within if section.within is None else section.within,
        )
        for section in sections
        if setting.name in section.values
    )
    return resolve(offers, default)
