"""Providers and their models."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.urls import reverse

from compaction_app.providers.types import Dialect, ThinkingStyle


class Provider(models.Model):
    """A provider that the user added. Those of the environment have no row; keys are not in the database."""

    DIALECTS = [(dialect.value, dialect.label) for dialect in Dialect]

    name = models.SlugField(max_length=40, unique=True)
    dialect = models.CharField(max_length=10, choices=DIALECTS)
    base_url = models.TextField()

    def __str__(self) -> str:
        return self.name


class PlannerModel(models.Model):
    """A model that can plan. Limits are in tokens, prices in US dollars per million tokens."""

    THINKING = [(style.value, style.label) for style in ThinkingStyle]

    provider = models.TextField()
    """The name of a provider, of the environment or of a row."""
    name = models.TextField()
    """The provider's name for it."""
    base_url = models.TextField(blank=True, default="")
    """Its own address, if it differs from its provider's."""
    window = models.PositiveIntegerField()
    output_limit = models.PositiveIntegerField()
    thinking_levels: models.JSONField[Any, Any] = models.JSONField(default=list)
    """The members of `planning.model_registry.LEVELS` that it supports; empty if it does not support thinking."""
    thinking_style = models.CharField(max_length=10, choices=THINKING, default=ThinkingStyle.BUDGET)
    price_in = models.FloatField(null=True)
    price_out = models.FloatField(null=True)
    price_cache_read = models.FloatField(null=True)
    """If unknown, cached input costs as much as input."""
    price_cache_write = models.FloatField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["provider", "name"], name="model_by_name")]

    def __str__(self) -> str:
        return f"{self.provider}/{self.name}"

    def get_absolute_url(self) -> str:
        return reverse("compaction:models", fragment=f"model-{self.pk}")


class Agreement(models.Model):
    """Permission for automatic planning with a provider's models. It applies to one host, and ends if the host
    changes."""

    provider = models.TextField(unique=True)
    origin = models.TextField()
    agreed_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.provider
