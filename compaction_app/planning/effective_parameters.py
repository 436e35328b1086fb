"""The parameters of a plan: those of the run, of the agent's settings files, and the defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from compaction_app.core import parameters as normal
from sessions_app.agents.agent_settings import AgentSettings
from sessions_app.sessionlog.errors import BadInput

PARAMETERS: Final = ("compression_ratio", "preserve_recent", "query")
DEFAULT_SOURCE: Final = "default"


@dataclass(frozen=True, slots=True)
class EffectiveParameters:
    """Raw compaction settings that apply to a project, with the source of each."""

    values: Mapping[str, object]
    sources: Mapping[str, str]
    faults: tuple[str, ...] = ()
    """What was ignored, and why: unusable files, values out of range."""


def effective_parameters(agent_settings: AgentSettings, own: Mapping[str, object]) -> EffectiveParameters:
    """The run's own parameters first, then the project's settings file, then the user's; else the default."""
    values: dict[str, object] = {}
    sources: dict[str, str] = dict.fromkeys(PARAMETERS, DEFAULT_SOURCE)
    for name in PARAMETERS:
        if own.get(name) is not None:
            values[name], sources[name] = own[name], "this run"
    faults = []
    for found in agent_settings.files:
        if found.fault:
            faults.append(f"{found.path}: {found.fault}")
        for name, value in found.parameters.items():
            if name not in values:
                values[name], sources[name] = value, str(found.path)
                if not _is_usable(name, value):
                    # The agent uses its default for such a value, and reads no other file.
                    sources[name] = DEFAULT_SOURCE
                    faults.append(f"{found.path}: {name} cannot be used")
    return EffectiveParameters(values, sources, tuple(faults))


def _is_usable(name: str, value: object) -> bool:
    if name == "query":
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return normal.compression_ratio(value) == value if name == "compression_ratio" else math.isfinite(value)


def own_parameters(ratio: float | None, preserve_recent: int | None, query: str | None) -> dict[str, object]:
    """The parameters that a user gave for one run. Raises BadInput if one is out of range."""
    if ratio is not None and normal.compression_ratio(ratio) != ratio:
        raise BadInput("bad_ratio", f"The ratio {ratio} is not between 0 and 1, both excluded. Nothing was planned.")
    if preserve_recent is not None and preserve_recent < 0:
        raise BadInput(
            "bad_preserve_recent", f"preserve_recent is {preserve_recent}, less than 0. Nothing was planned."
        )
    return {"compression_ratio": ratio, "preserve_recent": preserve_recent, "query": query}
