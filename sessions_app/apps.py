from __future__ import annotations

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """Session files: their format, an index over them, and the edge to the disk."""

    name = "sessions_app"
    verbose_name = "Sessions"

    def ready(self) -> None:
        from . import checks  # noqa: F401  # registers them
