"""Adding, changing and removing providers and models, entering keys, and agreeing to planning without being asked.

A change of a base URL forgets the key that was entered, before anything else happens, and ends what was agreed to
for another host. What cannot be used is told field by field, and then nothing is changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from compaction_app.models import Agreement, PlannerModel, Provider
from compaction_app.planning.api_keys import KeptKey, checked_key, drop_key, keep_key
from compaction_app.planning.model_registry import (
    ADDED,
    LABELS,
    LEVELS,
    OVER_PLAIN_HTTP,
    ResolvedProvider,
    provider_named,
    takes_a_key,
)
from compaction_app.providers.addresses import checked_base_url, origin_of
from sessions_app.sessionlog.errors import BadInput, Conflict

RESERVED: Final = frozenset({*LABELS, "embedded", "add"})
"""Names that mean something else already."""
NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
LONGEST_NAME: Final = 200
SMALLEST_WINDOW: Final = 8_000
SMALLEST_OUTPUT: Final = 500
PROMPT_AND_MANIFEST: Final = "A planner needs that much for what it is told and what it reads."
CALLS: Final = "A planner needs that much for its calls."
LARGEST_WINDOW: Final = 100_000_000
HIGHEST_PRICE: Final = 100_000.0
"""US dollars for a million tokens. More than that is a slip of the decimal point."""
_UNCHANGED: Final = "Nothing was changed."


class Misfilled(BadInput):
    """A form that cannot be used as it is: for each field why, in words. Nothing was changed."""

    def __init__(self, faults: dict[str, str]) -> None:
        super().__init__("misfilled", f"{' '.join(faults.values())} {_UNCHANGED}")
        self.faults = faults


@dataclass(frozen=True, slots=True)
class TypedProvider:
    """What was typed of a provider."""

    name: str = ""
    dialect: str = Provider.OPENAI
    base_url: str = ""
    key: str = field(default="", repr=False)
    """Empty: the key that is there stays, as long as the base URL does."""
    forget: bool = False
    """Whether the key that is there is to be forgotten."""


@dataclass(frozen=True, slots=True)
class TypedModel:
    """What was typed of a model, as text."""

    provider: str = ""
    name: str = ""
    base_url: str = ""
    window: str = ""
    output_limit: str = ""
    thinking_levels: tuple[str, ...] = ()
    thinking_style: str = PlannerModel.BUDGET
    price_in: str = ""
    price_out: str = ""
    price_cache_read: str = ""
    price_cache_write: str = ""


@dataclass(frozen=True, slots=True)
class Consequence:
    """What a change of a provider brought with it."""

    key_dropped: bool = False
    agreement_ended: bool = False


# ---- providers ---------------------------------------------------------------------------------------------


def add_provider(typed: TypedProvider) -> Provider:
    """Add a provider, with its key where one was typed. Raises Misfilled, and SystemFailure of the key file."""
    checked = _fields(
        name=lambda: _provider_name(typed.name),
        dialect=lambda: _dialect(typed.dialect),
        base_url=lambda: checked_base_url(typed.base_url),
        key=lambda: checked_key(typed.key),
    )
    _demand_safe(checked["base_url"], checked["key"])
    taken = Misfilled({"name": f"There is a provider {checked['name']} already."})
    if Provider.objects.filter(name=checked["name"]).exists():
        raise taken
    # A key that an earlier provider of this name left behind is not its key.
    drop_key(settings.REDLINE_DATA_DIR, checked["name"])
    try:
        with transaction.atomic():
            row = Provider.objects.create(
                name=checked["name"], dialect=checked["dialect"], base_url=checked["base_url"]
            )
    except IntegrityError:
        raise taken from None
    _keep(row.name, row.base_url, checked["key"])
    return row


def change_provider(name: str, typed: TypedProvider) -> Consequence:
    """Change a provider that was added: all but its name.

    A key that is typed belongs to the base URL beside it. Without one, the key that is there stays only where the
    base URL does. Raises BadInput `unknown_provider`, Misfilled, and SystemFailure of the key file.
    """
    row = _added(name)
    checked = _fields(
        dialect=lambda: _dialect(typed.dialect),
        base_url=lambda: checked_base_url(typed.base_url),
        key=lambda: checked_key(typed.key),
    )
    base_url, key = checked["base_url"], checked["key"]
    _demand_safe(base_url, key)
    elsewhere = base_url != row.base_url
    dropped = (elsewhere or typed.forget or bool(key)) and drop_key(settings.REDLINE_DATA_DIR, name)
    with transaction.atomic():
        others = Agreement.objects.filter(provider=name).exclude(origin=origin_of(base_url))
        ended = bool(others.delete()[0])
        Provider.objects.filter(pk=row.pk).update(dialect=checked["dialect"], base_url=base_url)
    _keep(name, base_url, key)
    return Consequence(key_dropped=dropped and not key, agreement_ended=ended)


def enter_key(name: str, key: str, origin: str) -> None:
    """Keep a key for a provider of the environment, for the origin that its user was shown.

    Raises Misfilled, Conflict `other_address` where it is asked elsewhere by now, and SystemFailure of the key file.
    """
    provider = provider_named(name)
    _demand_same(provider, origin)
    checked = _fields(key=lambda: _some_key(key))
    _demand_safe(provider.base_url, checked["key"], field="key")
    _keep(name, provider.base_url, checked["key"])


def forget_key(name: str) -> bool:
    """Forget the key that was entered for a provider; whether there was one. Raises SystemFailure of the key file."""
    return drop_key(settings.REDLINE_DATA_DIR, name)


def remove_provider(name: str) -> None:
    """Remove a provider that was added, with its models, its key and what was agreed to.

    Raises BadInput `unknown_provider`, and SystemFailure of the key file.
    """
    row = _added(name)
    drop_key(settings.REDLINE_DATA_DIR, name)
    with transaction.atomic():
        Agreement.objects.filter(provider=name).delete()
        PlannerModel.objects.filter(provider=name).delete()
        row.delete()


def agree(name: str, origin: str) -> None:
    """Let a provider's models plan without being asked for, at the origin that its user was shown.

    Raises BadInput `unknown_provider`, and Conflict `other_address` where it is asked elsewhere by now.
    """
    _demand_same(provider_named(name), origin)
    Agreement.objects.update_or_create(
        provider=name, defaults={"origin": origin, "agreed_at": timezone.now()}
    )


def take_agreement_back(name: str) -> None:
    """Let a provider's models plan only where somebody asks for it."""
    Agreement.objects.filter(provider=name).delete()


def _added(name: str) -> Provider:
    provider = provider_named(name)
    if provider.source != ADDED:
        raise BadInput(
            "unknown_provider",
            f"{provider.label} comes from the environment and cannot be changed here. {_UNCHANGED}",
        )
    return Provider.objects.get(name=name)


def _demand_same(provider: ResolvedProvider, origin: str) -> None:
    if not origin or provider.origin != origin:
        raise Conflict(
            "other_address",
            f"{provider.label} is asked at {provider.origin or 'no address'} by now, and not where the page said. "
            f"{_UNCHANGED} Look at it again.",
        )


def _keep(name: str, base_url: str, key: str) -> None:
    if key:
        keep_key(settings.REDLINE_DATA_DIR, name, KeptKey(origin_of(base_url), key))


def _demand_safe(base_url: str, key: str, field: str = "base_url") -> None:
    if key and not takes_a_key(base_url):
        raise Misfilled({field: OVER_PLAIN_HTTP})


# ---- models ------------------------------------------------------------------------------------------------


def add_model(typed: TypedModel) -> PlannerModel:
    """Add a model. Raises Misfilled."""
    values = _checked_model(typed)
    try:
        with transaction.atomic():
            return PlannerModel.objects.create(**values)
    except IntegrityError:
        raise _taken(values) from None


def change_model(key: int, typed: TypedModel) -> None:
    """Change a model. Raises BadInput `unknown_model`, and Misfilled."""
    values = _checked_model(typed)
    try:
        with transaction.atomic():
            changed = PlannerModel.objects.filter(pk=key).update(**values)
    except IntegrityError:
        raise _taken(values) from None
    if not changed:
        raise BadInput("unknown_model", f"That model is no longer there. {_UNCHANGED}")


def remove_model(key: int) -> None:
    """Remove a model. What it planned stays; it is no error where it is gone already."""
    PlannerModel.objects.filter(pk=key).delete()


def _taken(values: dict[str, Any]) -> Misfilled:
    return Misfilled({"name": f"{values['provider']} has a model {values['name']} already."})


def _checked_model(typed: TypedModel) -> dict[str, Any]:
    values = _fields(
        provider=lambda: provider_named(typed.provider).name,
        name=lambda: _model_name(typed.name),
        base_url=lambda: checked_base_url(typed.base_url) if typed.base_url.strip() else "",
        window=lambda: _tokens(typed.window, "window", SMALLEST_WINDOW, PROMPT_AND_MANIFEST),
        output_limit=lambda: _tokens(typed.output_limit, "output limit", SMALLEST_OUTPUT, CALLS),
        thinking_levels=lambda: _levels(typed.thinking_levels),
        thinking_style=lambda: _style(typed.thinking_style),
        price_in=lambda: _price(typed.price_in),
        price_out=lambda: _price(typed.price_out),
        price_cache_read=lambda: _price(typed.price_cache_read),
        price_cache_write=lambda: _price(typed.price_cache_write),
    )
    if values["output_limit"] > values["window"]:
        raise Misfilled({"output_limit": "An answer cannot be longer than the window that holds it."})
    provider = provider_named(typed.provider)
    elsewhere = values["base_url"] and origin_of(values["base_url"]) != provider.origin
    if elsewhere and provider.needs_key(values["base_url"]):
        raise Misfilled(
            {
                "base_url": f"The key of {provider.label} belongs to {provider.origin}, and goes nowhere else. Add "
                "that address as a provider of its own."
            }
        )
    if values["base_url"] == provider.base_url:
        # It follows its provider, also where that goes.
        values["base_url"] = ""
    return values


# ---- fields ------------------------------------------------------------------------------------------------


def _fields(**checks: Callable[[], Any]) -> dict[str, Any]:
    """What each check gives. Raises Misfilled with the words of all that refuse."""
    values, faults = {}, {}
    for name, check in checks.items():
        try:
            values[name] = check()
        except BadInput as refused:
            faults[name] = refused.message
    if faults:
        raise Misfilled(faults)
    return values


def _wrong(message: str) -> BadInput:
    return BadInput("misfilled", message)


def _provider_name(typed: str) -> str:
    name = typed.strip()
    if not NAME.fullmatch(name):
        raise _wrong(
            "A name is made of small letters, digits, - and _, 40 of them at most, such as “my-server”."
        )
    if name in RESERVED:
        raise _wrong(f"“{name}” means something else already. Choose another name.")
    return name


def _dialect(typed: str) -> str:
    if typed not in dict(Provider.DIALECTS):
        raise _wrong("Choose what it speaks.")
    return typed


def _some_key(typed: str) -> str:
    key = checked_key(typed)
    if not key:
        raise _wrong("Type the key.")
    return key


def _model_name(typed: str) -> str:
    name = typed.strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise _wrong(f"Type the name by which the provider knows it, {LONGEST_NAME} characters at most.")
    return name


def _tokens(typed: str, what: str, least: int, why: str) -> int:
    digits = re.sub(r"[ ,_\u00a0\u202f]", "", typed.strip())
    if not (digits.isascii() and digits.isdigit() and len(digits) < 12):
        raise _wrong(f"Write the {what} in digits, such as 200,000.")
    number = int(digits)
    if number < least:
        raise _wrong(f"The {what} is {least:,} tokens or more. {why}")
    if number > LARGEST_WINDOW:
        raise _wrong(f"The {what} is {LARGEST_WINDOW:,} tokens at most.")
    return number


def _levels(typed: Iterable[str]) -> list[str]:
    chosen = set(typed)
    if not chosen <= set(LEVELS):
        raise _wrong(f"The thinking levels are {', '.join(LEVELS)}.")
    return [level for level in LEVELS if level in chosen]


def _style(typed: str) -> str:
    if typed not in dict(PlannerModel.THINKING):
        raise _wrong("Choose how it is told how much to think.")
    return typed


def _price(typed: str) -> float | None:
    """A price in US dollars; None where nothing was typed."""
    text = typed.strip().removeprefix("$").strip()
    if not text:
        return None
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if not 0 <= price <= HIGHEST_PRICE:
        raise _wrong("A price is a number of US dollars for a million tokens, such as 3 or 0.25.")
    return price
