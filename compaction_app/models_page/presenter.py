"""The page of models: each provider with its models, and suggestions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.db.models import Count

from compaction_app.planning.model_registry import (
    ProviderModels,
    ResolvedProvider,
    models_by_provider,
    providers,
)
from sessions_app.index.context_window_lookup import ContextWindowLookup
from sessions_app.models import Session
from sessions_app.sessionlog.sourced_value import SourcedValue

SUGGESTED: Final = 12
"""The maximum number of suggested models."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A kind of server that users run themselves, with its default address."""

    name: str
    label: str
    base_url: str


PRESETS: Final = (
    Preset("ollama", "Ollama", "http://localhost:11434/v1"),
    Preset("llama-cpp", "llama.cpp", "http://localhost:8080/v1"),
    Preset("lm-studio", "LM Studio", "http://localhost:1234/v1"),
    Preset("vllm", "vLLM", "http://localhost:8000/v1"),
)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A model with which sessions were written, at a configured provider."""

    provider: ResolvedProvider
    name: str
    sessions: int
    window: SourcedValue[int] | None


@dataclass(frozen=True, slots=True)
class ModelsPage:
    """The data of the page."""

    blocks: list[ProviderModels]
    unset: list[ResolvedProvider]
    """The providers of the environment that are not configured and have no models."""
    suggestions: list[Suggestion]
    presets: tuple[Preset, ...] = PRESETS


def models_page() -> ModelsPage:
    """All providers with their models, and the models of sessions that could be added."""
    blocks = models_by_provider()
    return ModelsPage(
        blocks=[block for block in blocks if block.models or not block.provider.unset],
        unset=[block.provider for block in blocks if block.provider.unset and not block.models],
        suggestions=_suggestions(
            [block.provider for block in blocks],
            {model.planner for block in blocks for model in block.models},
        ),
    )


def _suggestions(known: list[ResolvedProvider], configured: set[str]) -> list[Suggestion]:
    usable = {provider.name: provider for provider in known if not provider.unset}
    named = Session.objects.shown().with_model().filter(provider__in=usable)
    counted = named.values_list("provider", "model").annotate(sessions=Count("pk")).order_by("-sessions", "model")
    lookup = ContextWindowLookup()
    return [
        Suggestion(usable[provider], name, sessions, lookup.window(name))
        for provider, name, sessions in counted[: SUGGESTED + len(configured)]
        if f"{provider}/{name}" not in configured
    ][:SUGGESTED]


# ---- initial values of forms --------------------------------------------------------------------------------


def preset_values(name: str) -> dict[str, str]:
    """The values of a preset; empty for an unknown name."""
    return {one.name: {"name": one.name, "base_url": one.base_url} for one in PRESETS}.get(name, {})


def chosen_provider(name: str) -> str:
    """The provider of a new model: the one with this name, otherwise the first usable one; empty if there is none."""
    known = providers()
    if name in {one.name for one in known}:
        return name
    return next((one.name for one in known if one.usable), "")
