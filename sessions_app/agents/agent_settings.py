"""An agent's settings of its own compaction, and where they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sessions_app.sessionlog.model_prices import InputPrices

from .settings_in_force import SettingInForce


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The compaction settings in one of an agent's settings files."""

    path: Path
    exists: bool
    compaction: Mapping[str, Any]
    """The compaction section, with the agent's names; it may have parameters of plans."""
    fault: str = ""
    """The reason why it cannot be used."""
    branch_summary: Mapping[str, Any] = field(default_factory=dict)
    """Its section on summaries of branches that are left, with the agent's names."""
    hooks: tuple[str, ...] = ()
    """What it says takes part in a compaction: commands and plugins, in words."""


class CompactionBudget(NamedTuple):
    """How many tokens decide whether an agent compacts, and what it keeps."""

    reserve_tokens: int = 0
    """The tokens of the context window that the agent leaves free."""
    keep_recent_tokens: int = 0
    """The latest tokens that it keeps; it does not compact if there is nothing before them."""
    reserve_percent: int = 0
    """The part of the window that it leaves free, if that is more."""
    limit: int | None = None
    """The tokens of the largest context that it allows, if that leaves more free."""

    def reserve(self, window: int | None) -> int:
        """The tokens that it leaves free of a window."""
        if window is None:
            return self.reserve_tokens
        allowed = window * (100 - self.reserve_percent) // 100
        if self.limit is not None:
            allowed = min(allowed, self.limit)
        return max(self.reserve_tokens, window - allowed)


class BranchSummarySettings(NamedTuple):
    """How an agent summarises a branch that is left."""

    reserve_tokens: int
    """The tokens of the model's window that the summarised messages leave free."""
    skips_question: bool
    """Whether the agent does not ask for a summary: then none is made."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The agent's effective settings for a project and a model."""

    files: Sequence[SettingsFile]
    """The existing files, in order of precedence."""
    budget: CompactionBudget
    switched_off_in: Path | None
    """The file that disables the agent's automatic compaction."""
    branch_summary: BranchSummarySettings | None = None
    """None if the agent does not summarise branches."""
    in_force: tuple[SettingInForce, ...] = ()
    """Each setting of the agent's own that matters, with its value."""
    parameters_within: tuple[str, ...] | None = None
    """The keys of the object of its files that may have parameters of plans; None if they are not read there."""

    @property
    def compacts_automatically(self) -> bool:
        """Whether the agent compacts at all, and no file disables that."""
        return bool(self.in_force) and self.switched_off_in is None


class Settings:
    """Reads an agent's files of settings. This base is that of an agent without any: it does not compact."""

    def for_project(self, cwd: str, home: Path, model: tuple[str, str] | None = None) -> AgentSettings:
        """The effective settings for a project and a model, given by provider and id; both are data from a session."""
        del cwd, home, model
        return AgentSettings((), CompactionBudget(), None)

    def user_file(self, home: Path) -> SettingsFile | None:
        """The user's own settings, for all projects; None if the agent has no such file."""
        del home
        return None

    def model_windows(self, home: Path) -> Mapping[str, int]:
        """Context windows in tokens by model id, from the user's configuration of the agent."""
        del home
        return {}

    def model_prices(self, home: Path) -> Mapping[str, InputPrices]:
        """Prices by model id, from the user's configuration of the agent."""
        del home
        return {}
