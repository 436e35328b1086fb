"""The forms of the Models page, and the changes that they make.

Providers, models and keys are added, changed, tested and removed, and automatic planning is permitted. `redline models`
uses the same forms: each rule is written once.

A change of a base URL deletes the entered key, before anything else happens, and ends the permission for another host.
"""

import asyncio
import math
import re
from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from compaction_app.models import Agreement, PlannerModel, Provider
from compaction_app.planning import model_registry
from compaction_app.planning.plan import MANUAL_PLANNER, PLANNERS
from compaction_app.providers import client
from compaction_app.providers.addresses import checked_base_url, origin_of
from compaction_app.providers.api_keys import KeptKey, checked_key, drop_key, keep_key
from compaction_app.providers.connection_test import Verdict, try_model
from compaction_app.providers.types import Dialect, Endpoint, ThinkingStyle
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.web.pages import CheckedField, InlineField, require_valid

RESERVED: Final = frozenset({*model_registry.LABELS, *PLANNERS, MANUAL_PLANNER, "add"})
"""Names with a special meaning."""
NAME: Final = r"\A[a-z0-9][a-z0-9_-]{0,39}\Z"
NAME_RULE: Final = "Use lower-case letters, digits, - and _, at most 40 characters, such as “my-server”."
LONGEST_NAME: Final = 200
MODEL_NAME_RULE: Final = f"Enter the name that the provider uses, at most {LONGEST_NAME} characters."
SMALLEST_WINDOW: Final = 8_000
SMALLEST_OUTPUT: Final = 500
LARGEST_WINDOW: Final = 100_000_000
HIGHEST_PRICE: Final = 100_000.0
"""In US dollars per million tokens. A higher price is taken for a misplaced decimal point."""
WIDE: Final = {"class": "input--wide", "spellcheck": "false"}
KEY_INPUT: Final = forms.PasswordInput({**WIDE, "autocomplete": "new-password"})


class TokenCountField(forms.CharField):
    """A number of tokens, with or without separators of thousands."""

    widget = forms.TextInput({"inputmode": "numeric", "size": 11})

    def __init__(self, label: str, least: int, reason: str) -> None:
        super().__init__(label=label)
        self.name, self.least, self.reason = label.lower(), least, reason

    def clean(self, value: Any) -> int:
        digits = re.sub(r"[ ,_\u00a0\u202f]", "", self.to_python(value) or "")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 12):
            raise forms.ValidationError(f"Enter the {self.name} in digits, such as 200,000.")
        number = int(digits)
        if number < self.least:
            raise forms.ValidationError(f"The {self.name} must be at least {self.least:,} tokens. {self.reason}")
        if number > LARGEST_WINDOW:
            raise forms.ValidationError(f"The {self.name} can be at most {LARGEST_WINDOW:,} tokens.")
        return number

    def prepare_value(self, value: Any) -> Any:
        return f"{value:,}" if isinstance(value, int) else value


class PriceField(forms.CharField):
    """A price in US dollars per million tokens; None if it is unknown."""

    widget = forms.TextInput({"inputmode": "decimal", "size": 7})

    def __init__(self, label: str) -> None:
        super().__init__(label=label, required=False)

    def clean(self, value: Any) -> float | None:
        text = (self.to_python(value) or "").removeprefix("$").strip()
        if not text:
            return None
        try:
            price = float(text)
        except ValueError:
            price = math.nan
        if not 0 <= price <= HIGHEST_PRICE:
            raise forms.ValidationError("Enter a price in US dollars per million tokens, such as 3 or 0.25.")
        return price

    def prepare_value(self, value: Any) -> Any:
        return f"{value:.10g}" if isinstance(value, float) else value


class ProviderForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes no parameter when it runs
    """Adds a provider, or changes one except its name. An empty key leaves the stored one, unless the base URL
    changes."""

    bound_field_class = InlineField
    name = forms.RegexField(
        NAME,
        widget=forms.TextInput({"maxlength": 40, "autocapitalize": "off", "spellcheck": "false"}),
        error_messages={
            "required": NAME_RULE,
            "invalid": NAME_RULE,
            "unique": "There is a provider %(model)s already.",
        },
    )
    dialect = forms.ChoiceField(
        choices=Provider.DIALECTS,
        initial=Dialect.OPENAI,
        label="API dialect",
        widget=forms.Select({"class": "select select--wide"}),
        error_messages=dict.fromkeys(("required", "invalid_choice"), "Choose an API dialect."),
    )
    base_url = CheckedField(
        checked_base_url,
        label="Base URL",
        widget=forms.URLInput({**WIDE, "list": "places", "placeholder": "http://localhost:11434/v1"}),
    )
    key = CheckedField(checked_key, required=False, widget=KEY_INPUT)
    forget = forms.BooleanField(required=False)

    class Meta:
        model = Provider
        fields = ("name", "dialect", "base_url")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["name"].disabled = self.instance.pk is not None

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if name in RESERVED:
            raise forms.ValidationError(f"“{name}” is reserved. Choose another name.")
        return name

    def clean(self) -> None:
        super().clean()
        base_url, key = self.cleaned_data.get("base_url"), self.cleaned_data.get("key")
        if base_url and key and not model_registry.takes_a_key(base_url):
            self.add_error("base_url", model_registry.OVER_PLAIN_HTTP)


class KeyForm(forms.Form):
    """A key for a provider of the environment, entered for the origin that the page showed; or its removal."""

    bound_field_class = InlineField
    origin = forms.CharField(required=False)
    key = CheckedField(checked_key, required=False, widget=KEY_INPUT)
    forget = forms.BooleanField(required=False)

    def __init__(self, provider: model_registry.ResolvedProvider, data: Any = None) -> None:
        super().__init__(data)
        self.provider = provider

    def clean(self) -> None:
        key = self.cleaned_data.get("key")
        if key and not model_registry.takes_a_key(self.provider.base_url):
            self.add_error("key", model_registry.OVER_PLAIN_HTTP)
        elif key == "" and not self.cleaned_data["forget"]:
            self.add_error("key", "Enter the key.")


class AgreementForm(forms.Form):
    """Allows automatic planning with a provider at the origin that was shown, or withdraws the permission."""

    origin = forms.CharField(required=False)
    back = forms.BooleanField(required=False)


def provider_choices() -> list[tuple[str, str]]:
    return [(provider.name, provider.label) for provider in model_registry.providers()]


class PlannerModelForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes no parameter when it runs
    """Adds or changes a model."""

    bound_field_class = InlineField
    provider = forms.ChoiceField(
        choices=provider_choices, error_messages={"invalid_choice": "There is no provider %(value)s."}
    )
    name = forms.CharField(
        max_length=LONGEST_NAME,
        widget=forms.TextInput({**WIDE, "autocapitalize": "off"}),
        error_messages={"required": MODEL_NAME_RULE, "max_length": MODEL_NAME_RULE},
    )
    base_url = CheckedField(
        checked_base_url,
        label="Base URL",
        required=False,
        widget=forms.URLInput({**WIDE, "placeholder": "its provider’s own"}),
    )
    window = TokenCountField(
        "Context window", SMALLEST_WINDOW, "A planner needs that much for its instructions and what it reads."
    )
    output_limit = TokenCountField("Output limit", SMALLEST_OUTPUT, "A planner needs that much for its calls.")
    thinking_levels = forms.MultipleChoiceField(
        choices=[(level, level) for level in model_registry.LEVELS],
        required=False,
        widget=forms.CheckboxSelectMultiple,
        error_messages={"invalid_choice": f"The thinking levels are {', '.join(model_registry.LEVELS)}."},
    )
    thinking_style = forms.TypedChoiceField(
        choices=PlannerModel.THINKING,
        initial=ThinkingStyle.BUDGET,
        required=False,
        empty_value=ThinkingStyle.BUDGET,
        widget=forms.RadioSelect,
        error_messages={"invalid_choice": "Choose a thinking style."},
    )
    price_in = PriceField("Input")
    price_out = PriceField("Output")
    price_cache_read = PriceField("Read from its cache")
    price_cache_write = PriceField("Written to its cache")

    class Meta:
        model = PlannerModel
        fields = (
            "provider",
            "name",
            "base_url",
            "window",
            "output_limit",
            "thinking_levels",
            "thinking_style",
            "price_in",
            "price_out",
            "price_cache_read",
            "price_cache_write",
        )

    @property
    def prices(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name.startswith("price_")]

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if not name.isprintable():
            raise forms.ValidationError(MODEL_NAME_RULE)
        return name

    def clean_thinking_levels(self) -> list[str]:
        return [level for level in model_registry.LEVELS if level in self.cleaned_data["thinking_levels"]]

    def clean(self) -> None:
        super().clean()
        values = self.cleaned_data
        if values.get("output_limit", 0) > values.get("window", LARGEST_WINDOW):
            self.add_error("output_limit", "The output limit cannot exceed the context window.")
        if "provider" not in values:
            return
        if values.get("base_url"):
            self._clean_base_url_of(model_registry.provider_named(values["provider"]))
        namesakes = PlannerModel.objects.filter(provider=values["provider"], name=values.get("name"))
        if namesakes.exclude(pk=self.instance.pk).exists():
            self.add_error("name", f"{values['provider']} has a model {values['name']} already.")

    def _clean_base_url_of(self, provider: model_registry.ResolvedProvider) -> None:
        base_url: str = self.cleaned_data["base_url"]
        if base_url == provider.base_url:
            # The permission follows its provider to any address.
            self.cleaned_data["base_url"] = ""
        elif origin_of(base_url) != provider.origin and provider.needs_key(base_url):
            self.add_error(
                "base_url",
                f"The key of {provider.label} belongs to {provider.origin} and is sent nowhere else. Add that address "
                "as a provider of its own.",
            )


@dataclass(frozen=True, slots=True)
class Consequence:
    """The side effects of a change of a provider."""

    key_dropped: bool = False
    agreement_ended: bool = False


# ---- providers ---------------------------------------------------------------------------------------------


@transaction.atomic
def add_provider(form: ProviderForm) -> Provider:
    """Add a provider, with its key if one was entered. Raises FormInvalid, and SystemFailure for the key file."""
    require_valid(form)
    # A key left by an earlier provider of this name does not belong to it.
    drop_key(settings.REDLINE_DATA_DIR, form.cleaned_data["name"])
    row: Provider = form.save()
    _keep(row.name, row.base_url, form.cleaned_data["key"])
    return row


def change_provider(form: ProviderForm) -> Consequence:
    """Change a provider that was added.

    An entered key belongs to the base URL in the same form. Without one, the stored key is kept only if the base URL is
    unchanged. Raises FormInvalid, and SystemFailure for the key file.
    """
    require_valid(form)
    row, key = form.instance, form.cleaned_data["key"]
    stays = row.base_url == form.initial["base_url"] and not key and not form.cleaned_data["forget"]
    dropped = not stays and drop_key(settings.REDLINE_DATA_DIR, row.name)
    with transaction.atomic():
        others = Agreement.objects.filter(provider=row.name).exclude(origin=origin_of(row.base_url))
        ended = bool(others.delete()[0])
        form.save()
    _keep(row.name, row.base_url, key)
    return Consequence(key_dropped=dropped and not key, agreement_ended=ended)


def change_key(form: KeyForm) -> None:
    """Store a key for a provider of the environment, for the origin that the page showed, or delete its present key.

    Raises FormInvalid, Conflict `other_address` if its address has changed since, and SystemFailure for the key file.
    """
    require_valid(form)
    provider = form.provider
    if form.cleaned_data["forget"]:
        drop_key(settings.REDLINE_DATA_DIR, provider.name)
        return
    _require_same_origin(provider, form.cleaned_data["origin"])
    _keep(provider.name, provider.base_url, form.cleaned_data["key"])


def forget_key(name: str) -> bool:
    """Delete the entered key of a provider; returns whether there was one. Raises SystemFailure for the key file."""
    return drop_key(settings.REDLINE_DATA_DIR, name)


def added_provider(name: str) -> Provider:
    """The row of a provider that was added. Raises BadInput `unknown_provider`, including for one of the
    environment."""
    provider = model_registry.provider_named(name)
    if provider.source != model_registry.ADDED:
        raise BadInput(
            "unknown_provider",
            f"{provider.label} comes from the environment and cannot be changed here. Nothing was changed.",
        )
    return Provider.objects.get(name=name)


def remove_provider(name: str) -> None:
    """Remove an added provider, with its models, its key and its permission for automatic planning.

    Raises BadInput `unknown_provider`, and SystemFailure for the key file.
    """
    row = added_provider(name)
    drop_key(settings.REDLINE_DATA_DIR, name)
    with transaction.atomic():
        Agreement.objects.filter(provider=name).delete()
        PlannerModel.objects.filter(provider=name).delete()
        row.delete()


def agree(name: str, origin: str) -> None:
    """Allow a provider's models to plan automatically, at the origin that the page showed.

    Raises BadInput `unknown_provider`, and Conflict `other_address` if its address has changed since.
    """
    _require_same_origin(model_registry.provider_named(name), origin)
    Agreement.objects.update_or_create(provider=name, defaults={"origin": origin, "agreed_at": timezone.now()})


def take_agreement_back(name: str) -> None:
    """End the permission for automatic planning with a provider's models."""
    Agreement.objects.filter(provider=name).delete()


def _require_same_origin(provider: model_registry.ResolvedProvider, origin: str) -> None:
    if not origin or provider.origin != origin:
        raise Conflict(
            "other_address",
            f"The address of {provider.label} is now {provider.origin or 'missing'}, not the one on the page. "
            f"Nothing was changed. Reload the page.",
        )


def _keep(name: str, base_url: str, key: str) -> None:
    if key:
        keep_key(settings.REDLINE_DATA_DIR, name, KeptKey(origin_of(base_url), key))


# ---- models ------------------------------------------------------------------------------------------------


@transaction.atomic
def save_model(form: PlannerModelForm) -> PlannerModel:
    """Add or change a model. Raises FormInvalid."""
    require_valid(form)
    row: PlannerModel = form.save()
    return row


def remove_model(key: int) -> None:
    """Remove a model. Its plans are kept; a model that no longer exists is not an error."""
    PlannerModel.objects.filter(pk=key).delete()


def test_model(endpoint: Endpoint, model: model_registry.ResolvedModel) -> Verdict:
    """The result of one tool call of a model, at its lowest thinking level. For code without an event loop."""
    return asyncio.run(_test(endpoint, model))


async def _test(endpoint: Endpoint, model: model_registry.ResolvedModel) -> Verdict:
    least = model.thinking_levels[0] if model.thinking_levels else ""
    try:
        return await try_model(endpoint, model.name, model.output_limit, least, model.thinking_style)
    finally:
        await client.close()
