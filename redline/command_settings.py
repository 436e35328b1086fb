"""Settings of commands without pages. The apps of the pages are left out, because they take long to load."""

from .settings import *  # noqa: F403
from .settings import REDLINE_APPS

INSTALLED_APPS = REDLINE_APPS
