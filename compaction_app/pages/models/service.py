"""Adding, changing, testing and removing providers, models and keys; and the permission for automatic planning.

A change of a base URL deletes the entered key, before anything else happens, and ends the permission
for another host.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from compaction_app.models import Agreement, PlannerModel, Provider
from compaction_app.planning.model_registry import ADDED, ResolvedModel, ResolvedProvider, provider_named
from compaction_app.providers import client
from compaction_app.providers.addresses import origin_of
from compaction_app.providers.api_keys import KeptKey, drop_key, keep_key
from compaction_app.providers.connection_test import Verdict, try_model
from compaction_app.providers.types import Endpoint
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.web.pages import require_valid

from .forms import KeyForm, PlannerModelForm, ProviderForm


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
    provider = provider_named(name)
    if provider.source != ADDED:
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
    _require_same_origin(provider_named(name), origin)
    Agreement.objects.update_or_create(provider=name, defaults={"origin": origin, "agreed_at": timezone.now()})


def take_agreement_back(name: str) -> None:
    """End the permission for automatic planning with a provider's models."""
    Agreement.objects.filter(provider=name).delete()


def _require_same_origin(provider: ResolvedProvider, origin: str) -> None:
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


def test_model(endpoint: Endpoint, model: ResolvedModel) -> Verdict:
    """The result of one tool call of a model, at its lowest thinking level. For code without an event loop."""
    return asyncio.run(_test(endpoint, model))


async def _test(endpoint: Endpoint, model: ResolvedModel) -> Verdict:
    least = model.thinking_levels[0] if model.thinking_levels else ""
    try:
        return await try_model(endpoint, model.name, model.output_limit, least, model.thinking_style)
    finally:
        await client.close()
