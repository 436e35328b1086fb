"""The configured providers and models, their sources and prices, and the hosts to which keys are sent.

    environment ──┐                    ┌─ models ─▶ model_named · model_of_session
                  ├─▶ providers ───────┤
    rows ─────────┘                    └─ endpoint_of ─▶ with a key, if one belongs to that origin

A key is sent only to the origin it belongs to: a key of the environment to its provider's own origin, or to that of the
base URL set with it in the environment; an entered key to the origin it was entered for. Over plain http, keys are sent
only to this machine. No page gets a key: `endpoint_of` is called when a request is made.

The price of a session's model comes from the configuration, the Models page, the agent's own files, the session (if it
records the cost of its replies), or the list prices in the package `genai-prices`, in this order. No request is made
for them: the package's own updates are not used. If prices rise with the length of a request, those of a short one
apply.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from django.conf import settings

from compaction_app.models import Agreement, PlannerModel, Provider
from compaction_app.providers.addresses import OWN, checked_base_url, is_loopback, origin_of
from compaction_app.providers.api_keys import KeptKey, checked_key, hint_of, read_keys
from compaction_app.providers.types import LEVELS as LEVELS, Dialect, Endpoint, Prices, ThinkingStyle
from sessions_app.agents.registry import model_prices
from sessions_app.document.document import Document
from sessions_app.models import Session
from sessions_app.sessionlog.context import thinking_level_of
from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.sessionlog.model_facts import InputPrices, of_model, undated
from sessions_app.sessionlog.sourced_value import SourcedValue

if TYPE_CHECKING:
    from genai_prices.types import TieredPrices


LABELS: Final[Mapping[str, str]] = {"anthropic": "Anthropic", "openai": "OpenAI", "openrouter": "OpenRouter"}
"""The providers that the environment can configure, by the names they use."""
ENVIRONMENT: Final = "environment"
ADDED: Final = "added"
ENTERED: Final = "entered"
COMFORTABLE_WINDOW: Final = 16_000
"""In tokens. With a smaller window a model can plan, but sees little of a session at a time."""
OVER_PLAIN_HTTP: Final = "A key is not sent over plain http to another machine. Use https."


@dataclass(frozen=True, slots=True)
class ResolvedProvider:
    """A provider, its source, and the part of its key that may be shown."""

    name: str
    label: str
    dialect: Dialect
    base_url: str
    """The base URL; empty if the environment sets an unusable one."""
    origin: str
    source: Literal["environment", "added"]
    variables: tuple[str, ...]
    """The environment variables that configure it; empty if it was added."""
    key_hint: str
    key_source: Literal["environment", "entered", ""]
    agreed: bool
    """Whether the user has agreed that its models plan automatically at this origin."""
    fault: str = ""
    """Why no requests can be sent to it, in words; empty if they can."""
    passed_over: str = ""
    """Why the key of the environment is not used, in words; empty if it is."""

    @property
    def usable(self) -> bool:
        return not self.fault and not self.unset

    @property
    def takes_entered_key(self) -> bool:
        """Whether an entered key would be used for this provider of the environment."""
        free = self.source == ENVIRONMENT and self.key_source != ENVIRONMENT
        return free and bool(self.base_url) and takes_a_key(self.base_url)

    @property
    def key_variable(self) -> str:
        return f"{self.name.upper()}_API_KEY" if self.source == ENVIRONMENT else ""

    @property
    def unset(self) -> bool:
        """Whether it is a provider of the environment that is not configured."""
        return bool(self.needs_key(self.base_url) and not self.key_source and not self.fault)

    def needs_key(self, base_url: str) -> bool:
        """Whether requests to it require a key: added providers and those on this machine work without one."""
        return self.source == ENVIRONMENT and not (base_url and is_loopback(base_url))


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that can plan. `window` and `output_limit` are tokens."""

    pk: int
    provider: ResolvedProvider
    name: str
    base_url: str
    """The address of requests: its own, otherwise its provider's."""
    window: int
    output_limit: int
    thinking_levels: tuple[str, ...]
    """The members of LEVELS that it supports, the lowest first."""
    thinking_style: ThinkingStyle
    entered: Prices
    """The prices that the user entered."""
    fault: str = ""
    """Why no requests can be sent to it, in words; empty if they can."""

    @property
    def planner(self) -> str:
        """The planner's name in a run: `provider/name`."""
        return f"{self.provider.name}/{self.name}"

    @property
    def prices(self) -> Prices:
        """The prices that the user entered, otherwise the list prices of its address."""
        listed = None if self.entered.is_known or self.is_here else list_prices(self.name, address=self.base_url)
        return listed or self.entered

    @property
    def is_small(self) -> bool:
        """Whether its window is small for planning."""
        return self.window < COMFORTABLE_WINDOW

    @property
    def elsewhere(self) -> bool:
        """Whether it has its own address."""
        return self.base_url != self.provider.base_url

    @property
    def is_here(self) -> bool:
        """Whether its host is this machine."""
        return is_loopback(self.base_url)

    @property
    def host(self) -> str:
        """Host and port, for display."""
        return Endpoint(self.provider.name, self.provider.dialect, self.base_url).host

    @property
    def agreed(self) -> bool:
        """Whether it may plan automatically: its provider may, and only at that origin."""
        return self.provider.agreed and origin_of(self.base_url) == self.provider.origin


# ---- providers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Keys:
    """The entered keys, or the reason why they cannot be read."""

    kept: Mapping[str, KeptKey]
    fault: str = ""

    @classmethod
    def read(cls) -> _Keys:
        try:
            return cls(read_keys(settings.REDLINE_DATA_DIR))
        except RedlineError as fault:
            return cls({}, fault.message)


def providers() -> list[ResolvedProvider]:
    """All providers of the environment, then the added ones, by name."""
    keys = _Keys.read()
    agreed = dict(Agreement.objects.values_list("provider", "origin"))
    found = [_of_environment(name, keys, agreed) for name in LABELS]
    return found + [_added(row, keys, agreed) for row in Provider.objects.order_by("name")]


def provider_named(name: str) -> ResolvedProvider:
    """The provider of that name. Raises BadInput `unknown_provider`."""
    found = providers()
    for provider in found:
        if provider.name == name:
            return provider
    known = ", ".join(provider.name for provider in found)
    raise BadInput("unknown_provider", f"There is no provider {name}. Known providers: {known}.")


def _of_environment(name: str, keys: _Keys, agreed: Mapping[str, str]) -> ResolvedProvider:
    dialect, own = OWN[name]
    key_variable, url_variable = f"{name.upper()}_API_KEY", f"{name.upper()}_BASE_URL"
    typed_url = os.environ.get(url_variable, "").strip()
    fault = base_url = origin = key = unusable = ""
    try:
        base_url = checked_base_url(typed_url or own)
        origin = origin_of(base_url)
    except BadInput:
        # An address can contain a password, so it is not quoted.
        fault = f"{url_variable} is not a valid address, so nothing is sent there."
    try:
        key = checked_key(os.environ.get(key_variable, ""))
    except BadInput as refused:
        unusable = f"{key_variable} cannot be used. {refused.message}"
    if base_url and not takes_a_key(base_url):
        fault = f"{url_variable} is plain http to another machine. {OVER_PLAIN_HTTP}"
    entered = _entered(name, origin, keys) if not key else ""
    if unusable and not entered:
        fault = fault or f"{unusable} Correct it and restart Redline, or enter a key on the Models page."
    if not key:
        fault = fault or keys.fault
    variables = [key_variable] * bool(key) + [url_variable] * bool(typed_url)
    return ResolvedProvider(
        name=name,
        label=LABELS[name],
        dialect=dialect,
        base_url=base_url,
        origin=origin,
        source="environment",
        variables=tuple(variables) or (key_variable,),
        key_hint=hint_of(key or entered),
        key_source="environment" if key else "entered" if entered else "",
        agreed=bool(origin) and agreed.get(name) == origin,
        fault=fault,
        passed_over=unusable if entered else "",
    )


def _added(row: Provider, keys: _Keys, agreed: Mapping[str, str]) -> ResolvedProvider:
    origin = origin_of(row.base_url)
    key = _entered(row.name, origin, keys)
    return ResolvedProvider(
        name=row.name,
        label=row.name,
        dialect=Dialect(row.dialect),
        base_url=row.base_url,
        origin=origin,
        source="added",
        variables=(),
        key_hint=hint_of(key),
        key_source="entered" if key else "",
        agreed=agreed.get(row.name) == origin,
        fault=keys.fault,
    )


def _entered(name: str, origin: str, keys: _Keys) -> str:
    """The entered key of a provider, if it was entered for this origin; otherwise empty."""
    kept = keys.kept.get(name)
    return kept.key if kept is not None and kept.origin == origin else ""


def takes_a_key(base_url: str) -> bool:
    """Whether a key may be sent to this address: over https, or to this machine."""
    return base_url.startswith("https://") or is_loopback(base_url)


# ---- models ------------------------------------------------------------------------------------------------


class ProviderModels(NamedTuple):
    provider: ResolvedProvider
    models: list[ResolvedModel]


def models_by_provider() -> list[ProviderModels]:
    """All providers, including those without models."""
    found = models()
    return [
        ProviderModels(provider, [model for model in found if model.provider.name == provider.name])
        for provider in providers()
    ]


def models() -> list[ResolvedModel]:
    """All configured models, in the order of their providers, without those whose provider was deleted."""
    by_name = {provider.name: (place, provider) for place, provider in enumerate(providers())}
    rows = [row for row in PlannerModel.objects.order_by("name") if row.provider in by_name]
    rows.sort(key=lambda row: by_name[row.provider][0])
    return [_in_force(row, by_name[row.provider][1]) for row in rows]


def _in_force(row: PlannerModel, provider: ResolvedProvider) -> ResolvedModel:
    base_url = row.base_url or provider.base_url
    return ResolvedModel(
        pk=row.pk,
        provider=provider,
        name=row.name,
        base_url=base_url,
        window=row.window,
        output_limit=row.output_limit,
        thinking_levels=tuple(level for level in LEVELS if level in row.thinking_levels),
        thinking_style=ThinkingStyle(row.thinking_style),
        entered=Prices(row.price_in, row.price_out, row.price_cache_read, row.price_cache_write),
        fault=provider.fault or _no_key(provider, base_url),
    )


def _no_key(provider: ResolvedProvider, base_url: str) -> str:
    """Why a missing key prevents requests to a model of this provider at an address; empty if it does not."""
    if not provider.needs_key(base_url):
        return ""
    if not provider.key_source:
        return f"There is no key for {provider.label}. Set {provider.key_variable}, or enter one on the Models page."
    if origin_of(base_url) != provider.origin:
        return (
            f"The key of {provider.label} belongs to {provider.origin} and is sent nowhere else. Add the host as a "
            "separate provider on the Models page."
        )
    return ""


def model_named(planner: str) -> ResolvedModel:
    """The model with this `provider/name`, or with this name if only one provider has it.

    Raises BadInput `unknown_planner`, which names the known ones.
    """
    known = models()
    for model in known:
        if model.planner == planner:
            return model
    found = [model for model in known if model.name == planner]
    if len(found) == 1:
        return found[0]
    names = ", ".join(model.planner for model in found or known)
    if found:
        raise BadInput("unknown_planner", f"More than one provider has a model {planner}. Name one in full: {names}.")
    raise BadInput(
        "unknown_planner",
        f"There is no planner {planner}. Known planners: embedded, prune{', ' * bool(names)}{names}. "
        "Add a model on the Models page.",
    )


def model_of_session(session: Session) -> ResolvedModel | None:
    """The model with which a session was written, if it is configured and usable.

    If its provider has no model of that name, the only other provider that has one is used.
    """
    named = [model for model in models() if model.name == session.model]
    own = [model for model in named if model.provider.name == session.provider]
    found = own or (named if len(named) == 1 else [])
    return found[0] if found and not found[0].fault else None


def endpoint_of(model: ResolvedModel) -> Endpoint:
    """The address of a model, with the key that belongs to its origin, if any.

    Raises BadInput `provider_unusable` and `no_key`.
    """
    provider = model.provider
    if provider.fault:
        raise BadInput("provider_unusable", f"Nothing was sent to {model.planner}. {provider.fault}")
    missing = _no_key(provider, model.base_url)
    if missing:
        raise BadInput("no_key", f"Nothing was sent to {model.planner}. {missing}")
    return Endpoint(provider.name, provider.dialect, model.base_url, _key_for(provider, model.base_url))


def _key_for(provider: ResolvedProvider, base_url: str) -> str:
    """The only function that reads a key: for its own origin, and never over plain http to another machine."""
    if origin_of(base_url) != provider.origin or not takes_a_key(base_url):
        return ""
    if provider.key_source == ENVIRONMENT:
        return checked_key(os.environ.get(provider.key_variable, ""))
    if provider.key_source == ENTERED:
        return _entered(provider.name, provider.origin, _Keys.read())
    return ""


# ---- thinking ----------------------------------------------------------------------------------------------


def level_taken(level: str, taken: Sequence[str]) -> str:
    """A thinking level that a model supports: the requested one, otherwise the next lower, otherwise its lowest; empty
    for none.

    `taken` are some of LEVELS; any other level, such as `off`, means no thinking.
    """
    if level not in LEVELS or not taken:
        return ""
    ordered = [one for one in LEVELS if one in taken]
    lower = [one for one in ordered if LEVELS.index(one) <= LEVELS.index(level)]
    return lower[-1] if lower else ordered[0]


def level_for(session: Session, model: ResolvedModel, leaf_id: str = "") -> str:
    """The thinking level in use on a session's branch, as far as a model supports it; empty for none.

    An empty `leaf_id` means the file's last entry. The session's entries are read from the index, only if the model
    supports thinking; a caller that has the branch calls `level_taken`. Raises BadInput `unknown_entry` and
    `no_entries`, and the errors of reading the file.
    """
    if not model.thinking_levels:
        return ""
    return level_taken(thinking_level_of(Document.of_index(session).branch(leaf_id)), model.thinking_levels)


# ---- prices ----------------------------------------------------------------------------------------------

CACHED: Final = 1_000


@lru_cache(CACHED)
def list_prices(model: str, *, provider: str = "", address: str = "") -> Prices | None:
    """The prices of a model, whose name may include a date or its maker; None if unknown.

    The provider is the one with this name or this base URL; without both, the one that makes models of such a name.
    Another provider's prices are not used: a gateway, or a server on this machine, has different ones.
    """
    # Most commands show no price, and the package takes half a second to import.
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, found = get_snapshot().find_provider_model(model, None, provider or None, address or None)
    except LookupError:
        return None
    prices = vars(found.get_prices(datetime.now(UTC)))
    return Prices(
        _dollars(prices.get("input_mtok")),
        _dollars(prices.get("output_mtok")),
        _dollars(prices.get("cache_read_mtok")),
        _dollars(prices.get("cache_write_mtok")),
        is_listed=True,
    )


def _dollars(price: Decimal | TieredPrices | None) -> float | None:
    if price is None:
        return None
    return float(price if isinstance(price, Decimal) else price.base)


REPLIES: Final = 20
"""The number of a session's latest replies that are searched for a price."""


def prices_of_session(session: Session, home: Path) -> SourcedValue[InputPrices] | None:
    """The prices of the model that last wrote to a session; None if no source has them.

    A model whose name ends with a date also has the prices that are configured for its name without the date.
    """
    sources: tuple[tuple[str, Callable[[], InputPrices | None]], ...] = (
        ("your configuration", lambda: _configured_price(session)),
        ("the Models page", lambda: _entered_price(session)),
        ("the agent's configuration", lambda: of_model(model_prices(home, session.continuing_agent), session.model)),
        ("the session", lambda: _recorded(session)),
        ("list prices", lambda: _listed_price(session)),
    )
    found = ((find(), source) for source, find in sources)
    return next((SourcedValue(prices, source) for prices, source in found if prices is not None), None)


def _configured_price(session: Session) -> InputPrices | None:
    found = of_model(settings.REDLINE.prices, session.model)
    return InputPrices(found.input, found.cache_read, found.cache_write) if found is not None else None


def _listed_price(session: Session) -> InputPrices | None:
    return _of_input(list_prices(session.model, provider=session.provider)) if session.model else None


def _entered_price(session: Session) -> InputPrices | None:
    """The prices from the Models page: those of the session's provider, otherwise those of the only other one with that
    model."""
    priced = [one for one in models() if one.entered.input is not None]
    for name in (session.model, undated(session.model)):
        named = [one for one in priced if one.name == name]
        own = [one for one in named if one.provider.name == session.provider]
        for model in own or (named if len(named) == 1 else []):
            return _of_input(model.entered)
    return None


def _of_input(prices: Prices | None) -> InputPrices | None:
    if prices is None or prices.input is None:
        return None
    return InputPrices(prices.input, prices.cache_read, prices.cache_write)


def _recorded(session: Session) -> InputPrices | None:
    """The prices in the session's last replies; also None if the session cannot be read, which is reported
    elsewhere."""
    replies = session.entries.filter(role=Role.ASSISTANT).order_by("-number")
    places = list(replies.values_list("offset", "length")[:REPLIES])
    try:
        with session.agent.store.open(session.real_path()) as reader:
            lines = [reader.read_at(offset, length) for offset, length in places]
    except RedlineError:
        return None
    return session.agent.format.recorded_prices(lines, session.model)
