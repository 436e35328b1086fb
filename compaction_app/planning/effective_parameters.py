"""The parameters of a plan: those of the run, of the agent's settings files, and the defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from compaction_app.core import parameters as normal
from sessions_app.agents.agent_settings import AgentSettings
from sessions_app.sessionlog.errors import BadInput

PARAMETERS: Final = ("compression_ratio", "preserve_recent", "query")
DEFAULT_SOURCE: Final = "default"
OWN_SOURCE: Final = "this run"


@dataclass(frozen=True, slots=True)
class EffectiveParameters:
    """Compaction settings that apply to a project, with the source of each."""

    values: Mapping[str, object]
    """As they count, without those that are the default."""
    sources: Mapping[str, str]
    refused: Mapping[str, Path] = field(default_factory=dict)
    """The file whose value of a parameter cannot be used."""
    hidden: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    """The later files that set the same parameter, which are not asked for it."""
    unusable: tuple[str, ...] = ()
    """The files that cannot be used, each with the reason."""

    @property
    def faults(self) -> tuple[str, ...]:
        """What was ignored, and why: unusable files, values out of range."""
        return (*self.unusable, *(f"{path}: {name} cannot be used" for name, path in self.refused.items()))


def effective_parameters(agent_settings: AgentSettings, own: Mapping[str, object]) -> EffectiveParameters:
    """The run's own parameters first, then the project's settings file, then the user's; else the default.

    The first file that sets a parameter decides: if its value cannot be used, the default applies, as in Atomic.
    """
    values = {name: own[name] for name in PARAMETERS if own.get(name) is not None}
    sources = {name: OWN_SOURCE if name in values else DEFAULT_SOURCE for name in PARAMETERS}
    refused: dict[str, Path] = {}
    hidden: dict[str, list[Path]] = {}
    for name in PARAMETERS:
        files = [found for found in agent_settings.files if name in found.parameters]
        if not files or name in values:
            continue
        first, *later = files
        hidden[name] = [found.path for found in later]
        value = normal.in_force(name, first.parameters[name])
        if value is None:
            refused[name] = first.path
        else:
            values[name], sources[name] = value, str(first.path)
    unusable = tuple(f"{found.path}: {found.fault}" for found in agent_settings.files if found.fault)
    return EffectiveParameters(values, sources, refused, hidden, unusable)


def own_parameters(ratio: float | None, preserve_recent: int | None, query: str | None) -> dict[str, object]:
    """The parameters that a user gave for one run. Raises BadInput if one is out of range."""
    if ratio is not None and normal.compression_ratio(ratio) != ratio:
        raise BadInput("bad_ratio", f"The ratio {ratio} is not between 0 and 1, both excluded. Nothing was planned.")
    if preserve_recent is not None and preserve_recent < 0:
        raise BadInput(
            "bad_preserve_recent", f"preserve_recent is {preserve_recent}, less than 0. Nothing was planned."
        )
    return {"compression_ratio": ratio, "preserve_recent": preserve_recent, "query": query}
