"""Work in the background that may send requests to a model."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec
from django.db import models

from compaction_app.providers.types import UsageTotals
from sessions_app.jobs.job import Job


class ModelJob(Job):
    """A job, with the address of its model and its requests to the model."""

    base_url = models.TextField(blank=True, default="")
    """The model's address, as confirmed before the start; empty if it uses none."""
    usage: models.JSONField[Any, Any] = models.JSONField(null=True)
    """The data sent to a model and received, as `providers.types.UsageTotals.to_json`; null if nothing left the
    machine."""

    class Meta:
        abstract = True

    @property
    def model_host(self) -> str:
        """Host and port of its requests, as confirmed before the start; empty without a model."""
        return urlsplit(self.base_url).netloc

    @property
    def traffic(self) -> UsageTotals | None:
        """The data sent and received; None if nothing has left the machine."""
        return msgspec.convert(self.usage, UsageTotals) if self.usage else None
