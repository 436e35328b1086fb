"""EDGE: the settings and models of pi and Atomic."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from sessions_app.agents import base
from sessions_app.agents.edge.json_file import JsonFile, existing_files, read_json_file
from sessions_app.agents.pure import fields
from sessions_app.sessionlog.model_facts import configured_prices

DEFAULT_RESERVE: Final = 16_384
"""The tokens of the window that the agents leave free unless their settings say otherwise."""
DEFAULT_KEEP_RECENT: Final = 20_000
"""The number of latest tokens that pi does not summarise, unless its settings differ."""
SECTION: Final = ("compaction",)
RESERVE: Final = base.CompactionSetting(
    "reserveTokens",
    "The tokens of the model’s window that it leaves free: it compacts when the context grows into them.",
    f"{DEFAULT_RESERVE}",
    base.is_token_count,
    DEFAULT_RESERVE,
)
KEEP_RECENT: Final = base.CompactionSetting(
    "keepRecentTokens",
    "The latest tokens that it does not summarise.",
    f"{DEFAULT_KEEP_RECENT}",
    base.is_token_count,
    DEFAULT_KEEP_RECENT,
)
SUMMARY_SETTINGS: Final = (
    base.CompactionSetting(
        "reserveTokens",
        "The tokens of the model’s window that a summary of a left branch leaves free.",
        f"{DEFAULT_RESERVE}",
        base.is_token_count,
        DEFAULT_RESERVE,
        ("branchSummary",),
    ),
    base.CompactionSetting(
        "skipPrompt",
        "Whether it leaves a branch without asking for a summary, and makes none.",
        "false",
        base.is_switch,
        example=True,
        within=("branchSummary",),
    ),
)
ENABLED: Final = base.CompactionSetting(
    "enabled", "Whether it compacts automatically.", "true", base.is_switch, example=False
)


class SharedSettings(base.Settings):
    """Settings in these directories of the home and the project, in order of precedence; the project's files come
    first.
    """

    def __init__(self, *directories: str) -> None:
        self._directories = directories

    def for_project(self, cwd: str, home: Path, model: tuple[str, str] | None = None) -> base.AgentSettings:
        """The effective settings, which are the same for all models."""
        names = [f"{directory}/settings.json" for directory in self._directories]
        users = [_user_path(directory, home) for directory in self._directories]
        files = tuple(map(_settings_file, existing_files(cwd, names, users)))
        of_summaries = [base.SettingsSection(found.path, found.branch_summary) for found in files]
        enabled, reserve = base.settings_in_force((ENABLED, RESERVE), _sections(files))
        summary_reserve, skips = base.settings_in_force(SUMMARY_SETTINGS, of_summaries)
        return base.AgentSettings(
            files,
            base.CompactionBudget(_count(reserve, DEFAULT_RESERVE)),
            enabled.switched_off_in,
            base.BranchSummarySettings(_count(summary_reserve, DEFAULT_RESERVE), skips.value is True),
            (enabled, reserve, summary_reserve, skips),
            SECTION,
        )

    def user_file(self, home: Path) -> base.SettingsFile:
        return _settings_file(read_json_file(_user_path(self._directories[0], home)))

    def models(self, home: Path) -> Iterator[base.ConfiguredModel]:
        """The models of every provider; values of other shapes are skipped."""
        found = read_json_file(home / self._directories[0] / "agent" / "models.json")
        for provider in fields.mapping(found.values, "providers").values():
            for model in fields.objects(fields.as_mapping(provider), "models"):
                name, window = fields.text_or_none(model, "id"), fields.integer(model, "contextWindow")
                prices = configured_prices(fields.mapping(model, "cost"), "cacheRead", "cacheWrite")
                if name is not None:
                    yield base.ConfiguredModel(name, window if window is not None and window > 0 else None, prices)


class PiSettings(SharedSettings):
    """Settings of an agent with sections for single models, which take precedence in every file."""

    def for_project(self, cwd: str, home: Path, model: tuple[str, str] | None = None) -> base.AgentSettings:
        found = super().for_project(cwd, home)
        enabled, _, *of_summaries = found.in_force
        sections = [*_sections_for(model, found.files), *_sections(found.files)]
        reserve, keep_recent = base.settings_in_force((RESERVE, KEEP_RECENT), sections)
        budget = base.CompactionBudget(_count(reserve, DEFAULT_RESERVE), _count(keep_recent, DEFAULT_KEEP_RECENT))
        return replace(found, budget=budget, in_force=(enabled, reserve, keep_recent, *of_summaries))


def _user_path(directory: str, home: Path) -> Path:
    return home / directory / "agent" / "settings.json"


def _settings_file(found: JsonFile) -> base.SettingsFile:
    compaction, summary = fields.mapping(found.values, "compaction"), fields.mapping(found.values, "branchSummary")
    return base.SettingsFile(found.path, found.exists, compaction, found.fault, summary)


def _sections(files: Sequence[base.SettingsFile]) -> list[base.SettingsSection]:
    return [base.SettingsSection(found.path, found.compaction) for found in files]


def _sections_for(model: tuple[str, str] | None, files: Sequence[base.SettingsFile]) -> Iterator[base.SettingsSection]:
    """The sections of the files for one model."""
    if model is None:
        return
    name = "/".join(model)
    for found in files:
        override = fields.mapping(fields.mapping(found.compaction, "modelOverrides"), name)
        if override:
            yield base.SettingsSection(found.path, override, (*SECTION, "modelOverrides", name))


def _count(found: base.SettingInForce, default: int) -> int:
    """The tokens of a setting, else the default."""
    return found.value if isinstance(found.value, int) else default
