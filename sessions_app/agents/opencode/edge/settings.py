"""EDGE: OpenCode's settings: `opencode.json` or `opencode.jsonc` of the project, then of the user."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from sessions_app.agents import base
from sessions_app.agents.edge.json_file import JsonFile, existing_files, read_commented_json_file
from sessions_app.agents.pure import fields
from sessions_app.sessionlog.model_facts import configured_prices

NAMES: Final = ("opencode.jsonc", "opencode.json")
OUTPUT: Final = 32_000
"""The maximum number of tokens that OpenCode allows for a reply."""
BUFFER: Final = 20_000
"""The maximum number of tokens kept free below a model's input limit, unless the settings differ."""


class OpenCodeSettings(base.Settings):
    def for_project(self, cwd: str, home: Path, model: tuple[str, str] | None = None) -> base.AgentSettings:
        """The effective settings; those of the project take precedence over the user's."""
        found = existing_files(cwd, NAMES, _user_files(home), read_commented_json_file)
        files = tuple(_settings_file(file) for file in found)
        limits = {name: _limit(found, model, name) for name in ("context", "input", "output")}
        in_force = base.settings_in_force(
            _SETTINGS, [base.SettingsSection(file.path, file.compaction) for file in files]
        )
        automatic, reserved, *_ = in_force
        budget = base.CompactionBudget(_reserve(limits, _count(reserved.value)))
        return base.AgentSettings(files, budget, automatic.switched_off_in, None, in_force, ("compaction",))

    def user_file(self, home: Path) -> base.SettingsFile:
        found = [read_commented_json_file(path) for path in _user_files(home)]
        return _settings_file(next((file for file in found if file.exists), found[-1]))

    def models(self, home: Path) -> Iterator[base.ConfiguredModel]:
        """Those of all providers; the first file takes precedence, and so does the first provider."""
        files = map(read_commented_json_file, _user_files(home))
        providers = [one for file in files for one in fields.mapping(file.values, "provider").values()]
        for provider in reversed(providers):
            for name, configured in fields.mapping(fields.as_mapping(provider), "models").items():
                model = fields.as_mapping(configured)
                window = _count(fields.mapping(model, "limit").get("context")) or None
                prices = configured_prices(fields.mapping(model, "cost"), "cache_read", "cache_write")
                yield base.ConfiguredModel(name, window, prices)


def _reserve(limits: Mapping[str, int], reserved: int | None) -> int:
    """The tokens at the end of the window that OpenCode leaves free: see `FORMAT.md`.

    It leaves room for a reply, or, if the model has an input limit, a buffer below that limit.
    """
    output = min(limits["output"], OUTPUT) or OUTPUT
    if not limits["input"]:
        return output
    buffer = min(BUFFER, output) if reserved is None else reserved
    return max(0, limits["context"] - limits["input"]) + buffer


def user_directory(home: Path) -> Path:
    return base.named_directory("XDG_CONFIG_HOME", home / ".config") / "opencode"


def _user_files(home: Path) -> list[Path]:
    return [user_directory(home) / name for name in NAMES]


def _settings_file(found: JsonFile) -> base.SettingsFile:
    compaction = fields.mapping(found.values, "compaction")
    hooks = tuple(f"plugin: {name}" for name in fields.texts(found.values, "plugin"))
    return base.SettingsFile(found.path, found.exists, compaction, found.fault, hooks=hooks)


def _limit(files: Sequence[JsonFile], model: tuple[str, str] | None, name: str) -> int:
    """A limit of a model, by the first file that configures it; 0 if none does."""
    provider_id, model_id = model or ("", "")
    for file in files:
        provider = fields.mapping(fields.mapping(file.values, "provider"), provider_id)
        configured = fields.mapping(fields.mapping(provider, "models"), model_id)
        limit = _count(fields.mapping(configured, "limit").get(name))
        if limit:
            return limit
    return 0


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**31 else None


_SETTINGS: Final = (
    base.CompactionSetting("auto", "Whether it compacts automatically.", "true", base.is_switch, example=False),
    base.CompactionSetting(
        "reserved",
        "The tokens that it leaves free of a model’s limit of input.",
        f"{BUFFER}, or the longest reply if that is less",
        base.is_token_count,
        BUFFER,
    ),
    base.CompactionSetting(
        "preserve_recent_tokens",
        "The latest tokens that it does not summarise.",
        "a quarter of what it may use, from 2000 to 15000",
        base.is_token_count,
        15_000,
    ),
    base.CompactionSetting(
        "tail_turns", "The latest turns that it does not summarise, at most.", "not set", base.is_token_count, 4
    ),
    base.CompactionSetting(
        "prune",
        "Whether it takes old tool outputs out: those beyond the newest 40,000 tokens, if they are more than 20,000.",
        "false",
        base.is_switch,
        example=True,
    ),
)
