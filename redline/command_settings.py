"""Settings of commands that show no page: without the apps of the pages, which take long to load."""

from .settings import *  # noqa: F403

INSTALLED_APPS = ["sessions_app", "compaction_app"]
