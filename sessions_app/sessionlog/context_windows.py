"""Context windows of models, in tokens. PURE: a table, and the order of precedence of the sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .model_names import of_model
from .sourced_value import SourcedValue

# By the longest matching prefix of a model id. As published by the providers; other models are unknown.
KNOWN_WINDOWS: Final[Mapping[str, int]] = {
    "claude-": 200_000,
    "codex-mini": 200_000,
    "deepseek-chat": 128_000,
    "deepseek-reasoner": 128_000,
    "gemini-1.5-pro": 2_097_152,
    "gemini-2.": 1_048_576,
    "gemini-3": 1_048_576,
    "gpt-4.1": 1_047_576,
    "gpt-4o": 128_000,
    "gpt-5": 400_000,
    "kimi-k2": 262_144,
    "o1": 200_000,
    "o3": 200_000,
    "o4-mini": 200_000,
}


def window_of(
    model: str, chosen: Mapping[str, SourcedValue[int]], agents: Mapping[str, int], recorded: int | None = None
) -> SourcedValue[int] | None:
    """The window of a model: the user's choice, that of the agent's configuration, what the session records, or this
    table; None if unknown."""
    chosen_one = of_model(chosen, model)
    if chosen_one is not None:
        return chosen_one
    configured = of_model(agents, model)
    if configured is not None:
        return SourcedValue(configured, "the agent's configuration")
    if recorded is not None:
        return SourcedValue(recorded, "the session")
    # Aggregators name a model after its maker: "anthropic/claude-…".
    name = model.rpartition("/")[2]
    known = max((prefix for prefix in KNOWN_WINDOWS if name.startswith(prefix)), key=len, default=None)
    return SourcedValue(KNOWN_WINDOWS[known], "Redline's table") if known is not None else None
