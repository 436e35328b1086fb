"""The parameters of a plan: those of the run, of the agent's settings files, and the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from compaction_app.core import parameters as normal
from sessions_app.agents.base import AgentSettings, CompactionSetting, SettingInForce
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.sourced_value import resolve

OWN_SOURCE: Final = "this run"
PLAN_SETTINGS: Final = (
    CompactionSetting(
        "compression_ratio",
        "The fraction of the tokens that a plan keeps.",
        f"{normal.DEFAULT_RATIO:g}",
        partial(normal.is_usable, "compression_ratio"),
        normal.DEFAULT_RATIO,
        within=(),
    ),
    CompactionSetting(
        "preserve_recent",
        "How many of the last entries are never deleted.",
        f"{normal.DEFAULT_PRESERVE_RECENT}",
        partial(normal.is_usable, "preserve_recent"),
        normal.DEFAULT_PRESERVE_RECENT,
        within=(),
    ),
    CompactionSetting(
        "query",
        "What matters: a model keeps it, and the embedded planner keeps what its words find.",
        "your last message, for a model; nothing, for the embedded planner",
        bool,  # an empty query is none
        "the failing test",
        within=(),
    ),
)


@dataclass(frozen=True, slots=True)
class EffectiveParameters:
    """The effective parameters of a project."""

    found: tuple[SettingInForce, ...] = ()
    unusable: tuple[str, ...] = ()
    """The files that cannot be used, each with the reason."""

    @property
    def values(self) -> dict[str, object]:
        """The values by name, without default values."""
        return {one.name: one.value for one in self.found if not one.is_default}

    @property
    def sources(self) -> dict[str, str]:
        return {one.name: one.source for one in self.found}

    @property
    def faults(self) -> tuple[str, ...]:
        """Ignored files and values, with the reason: unusable files, values out of range."""
        refused = (f"{path}: {one.name} cannot be used" for one in self.found for path in one.refused)
        return (*self.unusable, *refused)


def effective_parameters(agent_settings: AgentSettings, own: Mapping[str, object]) -> EffectiveParameters:
    """The run's own parameters first, then the project's settings file, then the user's; otherwise the default.

    The first file that sets a parameter decides: if its value cannot be used, the default applies, as in Atomic.
    """
    within, files = agent_settings.parameters_within, agent_settings.files
    given = [
        (OWN_SOURCE, {name: value for name, value in own.items() if value is not None}),
        *((str(file.path), file.compaction) for file in files if within is not None),
    ]
    found = []
    for setting in PLAN_SETTINGS:
        name, default = setting.name, SettingInForce(None, setting=setting, within=within)
        offers = (
            replace(default, value=normal.in_force(name, values[name]), source=source)
            for source, values in given
            if name in values
        )
        found.append(resolve(offers, default, first_decides=True))
    unusable = tuple(f"{file.path}: {file.fault}" for file in files if file.fault)
    return EffectiveParameters(tuple(found), unusable)


def own_parameters(ratio: float | None, preserve_recent: int | None, query: str | None) -> dict[str, object]:
    """The parameters that a user gave for one run. Raises BadInput if one is out of range."""
    if ratio is not None and normal.compression_ratio(ratio) != ratio:
        raise BadInput("bad_ratio", f"The ratio {ratio} is not between 0 and 1, both excluded. Nothing was planned.")
    if preserve_recent is not None and preserve_recent < 0:
        raise BadInput(
            "bad_preserve_recent", f"preserve_recent is {preserve_recent}, less than 0. Nothing was planned."
        )
    return {"compression_ratio": ratio, "preserve_recent": preserve_recent, "query": query}
