from __future__ import annotations

from django.apps import AppConfig


class CompactionConfig(AppConfig):
    """Deletion: planning it, reviewing it, writing it, taking it back."""

    name = "compaction_app"
    verbose_name = "Compaction"
