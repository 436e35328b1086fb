from __future__ import annotations

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """Session files: their formats, an index of them, and access to the disk."""

    name = "sessions_app"
    verbose_name = "Sessions"

    def ready(self) -> None:
        from . import checks  # noqa: F401  # registers them
