"""The page of models: each provider with its models, what could be added, and the forms that add and change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from django.db.models import Count
from django.http import QueryDict

from compaction_app.models import PlannerModel, Provider
from compaction_app.planning.model_registry import (
    ADDED,
    LEVELS,
    ResolvedModel,
    ResolvedProvider,
    models,
    providers,
)
from sessions_app.context_windows import Window
from sessions_app.index.context_window_lookup import ContextWindowLookup
from sessions_app.models import Session

from .service import TypedModel, TypedProvider

SUGGESTED: Final = 12
"""Models of sessions that are suggested at most."""
OUTPUT_LIMIT: Final = "8,192"
"""What is proposed as an output limit: nearly every model can answer as much."""
DIALECTS: Final = dict(Provider.DIALECTS)


@dataclass(frozen=True, slots=True)
class Preset:
    """A server that people run themselves, as it is after its installation."""

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
class ProviderCard:
    """One provider that can be used, or that says why it cannot, and its models."""

    provider: ResolvedProvider
    models: list[ResolvedModel]

    @property
    def dialect(self) -> str:
        return DIALECTS[self.provider.dialect]

    @property
    def added(self) -> bool:
        return self.provider.source == ADDED


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A model that sessions were written with, at a provider that is configured."""

    provider: ResolvedProvider
    name: str
    sessions: int
    window: Window | None


@dataclass(frozen=True, slots=True)
class ModelsPage:
    """Everything that the page shows."""

    blocks: list[ProviderCard]
    unset: list[ResolvedProvider]
    """Those of the environment that nobody has set up, and that have no models."""
    suggestions: list[Suggestion]
    presets: tuple[Preset, ...] = PRESETS

    @property
    def models(self) -> int:
        return sum(len(block.models) for block in self.blocks)


def models_page() -> ModelsPage:
    """All providers with their models, and the models of sessions that could be added."""
    found = models()
    blocks = [
        ProviderCard(provider, [model for model in found if model.provider.name == provider.name])
        for provider in providers()
    ]
    return ModelsPage(
        blocks=[block for block in blocks if block.models or not block.provider.unset],
        unset=[block.provider for block in blocks if block.provider.unset and not block.models],
        suggestions=_suggestions([block.provider for block in blocks], {model.planner for model in found}),
    )


def _suggestions(known: list[ResolvedProvider], configured: set[str]) -> list[Suggestion]:
    usable = {provider.name: provider for provider in known if not provider.unset}
    named = Session.objects.filter(root__configured=True, missing=False, provider__in=usable).exclude(
        model=""
    )
    counted = (
        named.values_list("provider", "model").annotate(sessions=Count("pk")).order_by("-sessions", "model")
    )
    lookup = ContextWindowLookup()
    return [
        Suggestion(usable[provider], name, sessions, lookup.window(name))
        for provider, name, sessions in counted[: SUGGESTED + len(configured)]
        if f"{provider}/{name}" not in configured
    ][:SUGGESTED]


# ---- the form of a provider --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProviderForm:
    """The form as it is shown. A key is never put into it again."""

    typed: TypedProvider
    known: ResolvedProvider | None = None
    """The provider that is changed; none where one is added."""
    faults: Mapping[str, str] = field(default_factory=dict)
    dialects: tuple[tuple[str, str], ...] = Provider.DIALECTS
    presets: tuple[Preset, ...] = PRESETS


def typed_provider(posted: QueryDict) -> TypedProvider:
    """What was posted of a provider."""
    return TypedProvider(
        name=posted.get("name", "").strip(),
        dialect=posted.get("dialect", ""),
        base_url=posted.get("base_url", "").strip(),
        key=posted.get("key", ""),
        forget="forget" in posted,
    )


def preset_named(name: str) -> TypedProvider:
    """A preset as if it had been typed; an empty form for no preset, or one that is not known."""
    for preset in PRESETS:
        if preset.name == name:
            return TypedProvider(name=preset.name, base_url=preset.base_url)
    return TypedProvider()


def provider_as_typed(provider: ResolvedProvider) -> TypedProvider:
    return TypedProvider(name=provider.name, dialect=provider.dialect, base_url=provider.base_url)


# ---- the form of a model -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelForm:
    """The form as it is shown."""

    typed: TypedModel
    key: int | None = None
    """The row that is changed; none where one is added."""
    faults: Mapping[str, str] = field(default_factory=dict)
    window_source: str = ""
    """Who says what the window is, where it was filled in."""
    levels: tuple[str, ...] = LEVELS
    styles: tuple[tuple[str, str], ...] = PlannerModel.THINKING
    providers: list[ResolvedProvider] = field(default_factory=providers)

    @property
    def prices(self) -> list[tuple[str, str, str, str]]:
        """Name, label, value and fault of each field of a price."""
        labels = (
            ("price_in", "Input"),
            ("price_out", "Output"),
            ("price_cache_read", "Read from its cache"),
            ("price_cache_write", "Written to its cache"),
        )
        return [(name, label, getattr(self.typed, name), self.faults.get(name, "")) for name, label in labels]


def typed_model(posted: QueryDict) -> TypedModel:
    """What was posted of a model."""
    return TypedModel(
        provider=posted.get("provider", ""),
        name=posted.get("name", "").strip(),
        base_url=posted.get("base_url", "").strip(),
        window=posted.get("window", "").strip(),
        output_limit=posted.get("output_limit", "").strip(),
        thinking_levels=tuple(posted.getlist("thinking_levels")),
        thinking_style=posted.get("thinking_style", PlannerModel.BUDGET),
        price_in=posted.get("price_in", "").strip(),
        price_out=posted.get("price_out", "").strip(),
        price_cache_read=posted.get("price_cache_read", "").strip(),
        price_cache_write=posted.get("price_cache_write", "").strip(),
    )


def new_model_form(provider: str, name: str) -> ModelForm:
    """The form for a model that is added, with what is known of one of that name."""
    window = ContextWindowLookup().window(name)
    known = providers()
    if provider not in {one.name for one in known}:
        provider = next((one.name for one in known if one.usable), "")
    typed = TypedModel(
        provider=provider,
        name=name,
        window=f"{window.tokens:,}" if window is not None else "",
        output_limit=OUTPUT_LIMIT,
    )
    return ModelForm(typed, window_source=window.source if window is not None else "", providers=known)


def model_as_typed(row: PlannerModel) -> TypedModel:
    return TypedModel(
        provider=row.provider,
        name=row.name,
        base_url=row.base_url,
        window=f"{row.window:,}",
        output_limit=f"{row.output_limit:,}",
        thinking_levels=tuple(row.thinking_levels),
        thinking_style=row.thinking_style,
        price_in=_price(row.price_in),
        price_out=_price(row.price_out),
        price_cache_read=_price(row.price_cache_read),
        price_cache_write=_price(row.price_cache_write),
    )


def _price(price: float | None) -> str:
    return "" if price is None else f"{price:.10g}"
