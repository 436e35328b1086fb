"""The forms of the Models page. `redline models add` uses the same ones: each rule is written once."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from django import forms

from compaction_app.models import PlannerModel, Provider
from compaction_app.planning.api_keys import checked_key
from compaction_app.planning.model_registry import (
    LABELS,
    LEVELS,
    OVER_PLAIN_HTTP,
    ResolvedProvider,
    provider_named,
    providers,
    takes_a_key,
)
from compaction_app.providers.addresses import checked_base_url, origin_of
from compaction_app.providers.types import Dialect, ThinkingStyle
from sessions_app.web.forms import CheckedField

RESERVED: Final = frozenset({*LABELS, "embedded", "add"})
"""Names that have another meaning already."""
NAME: Final = r"\A[a-z0-9][a-z0-9_-]{0,39}\Z"
NAME_RULE: Final = (
    "A name is made of small letters, digits, - and _, 40 of them at most, such as “my-server”."
)
LONGEST_NAME: Final = 200
MODEL_NAME_RULE: Final = f"Type the name by which the provider knows it, {LONGEST_NAME} characters at most."
SMALLEST_WINDOW: Final = 8_000
SMALLEST_OUTPUT: Final = 500
LARGEST_WINDOW: Final = 100_000_000
HIGHEST_PRICE: Final = 100_000.0
"""US dollars for a million tokens. More than that is a slip of the decimal point."""


class TokenCountField(forms.CharField):
    """A number of tokens, with or without separators of thousands."""

    def __init__(self, name: str, least: int, reason: str) -> None:
        super().__init__()
        self.name, self.least, self.reason = name, least, reason

    def clean(self, value: Any) -> int:
        digits = re.sub(r"[ ,_\u00a0\u202f]", "", self.to_python(value) or "")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 12):
            raise forms.ValidationError(f"Write the {self.name} in digits, such as 200,000.")
        number = int(digits)
        if number < self.least:
            raise forms.ValidationError(f"The {self.name} is {self.least:,} tokens or more. {self.reason}")
        if number > LARGEST_WINDOW:
            raise forms.ValidationError(f"The {self.name} is {LARGEST_WINDOW:,} tokens at most.")
        return number

    def prepare_value(self, value: Any) -> Any:
        return f"{value:,}" if isinstance(value, int) else value


class PriceField(forms.CharField):
    """A price in US dollars for a million tokens; None if it is unknown."""

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
            raise forms.ValidationError(
                "A price is a number of US dollars for a million tokens, such as 3 or 0.25."
            )
        return price

    def prepare_value(self, value: Any) -> Any:
        return f"{value:.10g}" if isinstance(value, float) else value


class ProviderForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes no parameter when it runs
    """Adds a provider, or changes one except its name. An empty key leaves the stored one, unless the base URL
    changes."""

    name = forms.RegexField(
        NAME,
        error_messages={
            "required": NAME_RULE,
            "invalid": NAME_RULE,
            "unique": "There is a provider %(model)s already.",
        },
    )
    dialect = forms.ChoiceField(
        choices=Provider.DIALECTS,
        initial=Dialect.OPENAI,
        error_messages=dict.fromkeys(("required", "invalid_choice"), "Choose its API dialect."),
    )
    base_url = CheckedField(checked_base_url)
    key = CheckedField(checked_key, required=False)
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
            raise forms.ValidationError(f"“{name}” has another meaning already. Choose another name.")
        return name

    def clean(self) -> None:
        super().clean()
        base_url, key = self.cleaned_data.get("base_url"), self.cleaned_data.get("key")
        if base_url and key and not takes_a_key(base_url):
            self.add_error("base_url", OVER_PLAIN_HTTP)


class KeyForm(forms.Form):
    """A key for a provider of the environment, entered for the origin that the page showed; or its removal."""

    origin = forms.CharField(required=False)
    key = CheckedField(checked_key, required=False)
    forget = forms.BooleanField(required=False)

    def __init__(self, provider: ResolvedProvider, data: Any = None) -> None:
        super().__init__(data)
        self.provider = provider

    def clean(self) -> None:
        key = self.cleaned_data.get("key")
        if key and not takes_a_key(self.provider.base_url):
            self.add_error("key", OVER_PLAIN_HTTP)
        elif key == "" and not self.cleaned_data["forget"]:
            self.add_error("key", "Type the key.")


def provider_choices() -> list[tuple[str, str]]:
    return [(provider.name, provider.label) for provider in providers()]


class PlannerModelForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes no parameter when it runs
    """Adds or changes a model."""

    provider = forms.ChoiceField(
        choices=provider_choices, error_messages={"invalid_choice": "There is no provider %(value)s."}
    )
    name = forms.CharField(
        max_length=LONGEST_NAME, error_messages={"required": MODEL_NAME_RULE, "max_length": MODEL_NAME_RULE}
    )
    base_url = CheckedField(checked_base_url, required=False)
    window = TokenCountField(
        "window", SMALLEST_WINDOW, "A planner needs that much for its instructions and what it reads."
    )
    output_limit = TokenCountField(
        "output limit", SMALLEST_OUTPUT, "A planner needs that much for its calls."
    )
    thinking_levels = forms.MultipleChoiceField(
        choices=[(level, level) for level in LEVELS],
        required=False,
        error_messages={"invalid_choice": f"The thinking levels are {', '.join(LEVELS)}."},
    )
    thinking_style = forms.TypedChoiceField(
        choices=PlannerModel.THINKING,
        initial=ThinkingStyle.BUDGET,
        required=False,
        empty_value=ThinkingStyle.BUDGET,
        error_messages={"invalid_choice": "Choose its thinking style."},
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
        return [level for level in LEVELS if level in self.cleaned_data["thinking_levels"]]

    def clean(self) -> None:
        super().clean()
        values = self.cleaned_data
        if values.get("output_limit", 0) > values.get("window", LARGEST_WINDOW):
            self.add_error("output_limit", "An answer cannot be longer than the window that holds it.")
        if "provider" not in values:
            return
        if values.get("base_url"):
            self._clean_base_url_of(provider_named(values["provider"]))
        namesakes = PlannerModel.objects.filter(provider=values["provider"], name=values.get("name"))
        if namesakes.exclude(pk=self.instance.pk).exists():
            self.add_error("name", f"{values['provider']} has a model {values['name']} already.")

    def _clean_base_url_of(self, provider: ResolvedProvider) -> None:
        base_url: str = self.cleaned_data["base_url"]
        if base_url == provider.base_url:
            # It follows its provider to any address.
            self.cleaned_data["base_url"] = ""
        elif origin_of(base_url) != provider.origin and provider.needs_key(base_url):
            self.add_error(
                "base_url",
                f"The key of {provider.label} belongs to {provider.origin} and is sent nowhere else. Add that address "
                "as a provider of its own.",
            )
