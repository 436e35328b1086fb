import logging.config

from django.apps import AppConfig
from django.conf import settings


class SessionsConfig(AppConfig):
    """Session files: their formats, an index of them, and access to the disk."""

    name = "sessions_app"
    verbose_name = "Sessions"

    def ready(self) -> None:
        from . import checks  # noqa: F401  # registers them

        logging.config.dictConfig(settings.LOGGING)
