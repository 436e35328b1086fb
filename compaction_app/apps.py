from __future__ import annotations

from django.apps import AppConfig


class CompactionConfig(AppConfig):
    """Deletion: planning it, reviewing it, writing it, taking it back."""

    name = "compaction_app"
    verbose_name = "Compaction"

    def ready(self) -> None:
        from django.conf import settings

        from sessions_app.services.marks import add_source
        from sessions_app.services.session_locks import add_settler

        from . import checks  # noqa: F401  # registers them
        from .hooks import load_hooks

        load_hooks(settings.REDLINE.hooks)
        add_source("compaction_app.pages.waiting.marks")
        add_settler("compaction_app.services.records.settle", "compaction_app.services.records.unsettled")
