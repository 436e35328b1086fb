"""System checks of the configuration, with ids and hints.

They have a tag, so that commands can run them without Django's own checks, which import every page.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, register

from sessions_app.disk.discovery import fault_of_root
from sessions_app.disk.files import real_path

CONFIGURATION: Final = "configuration"
"""The tag of the checks that every command runs."""
CONFIGURATION_FAULT = "redline.E001"
ROOT_UNREADABLE = "redline.W001"
MISSPELT = "redline.W003"
ROOT_TWICE = "redline.W004"


@register(CONFIGURATION)
def check_configuration(*_: object, **__: object) -> Sequence[CheckMessage]:
    """redline.E001: a value in the environment or in redline.toml cannot be used."""
    hint = f"Correct it in the environment (REDLINE_*) or in {settings.REDLINE_DATA_DIR / 'redline.toml'}."
    return [Error(f"{fault.rstrip('.')}.", hint=hint, id=CONFIGURATION_FAULT) for fault in settings.REDLINE_FAULTS]


@register(CONFIGURATION)
def check_roots(*_: object, **__: object) -> Sequence[CheckMessage]:
    """redline.W001: a configured root is not a directory, or cannot be read."""
    hint = "Delete it from the folders, or make it a directory that this user can read."
    return [
        checks.Warning(fault, hint=hint, id=ROOT_UNREADABLE)
        for fault in map(fault_of_root, (root.path for root in settings.REDLINE.roots))
        if fault
    ]


@register(CONFIGURATION)
def check_variables(*_: object, **__: object) -> Sequence[CheckMessage]:
    """redline.W003: an environment variable resembles a setting, but sets nothing."""
    return [
        checks.Warning(
            f"{name} sets nothing: there is no setting with this name.",
            hint=f"Did you mean {near}?",
            id=MISSPELT,
        )
        for name, near in settings.REDLINE_MISSPELT
    ]


@register(CONFIGURATION)
def check_distinct_roots(*_: object, **__: object) -> Sequence[CheckMessage]:
    """redline.W004: two roots are the same directory; only the settings of the last one count."""
    counted = Counter(real_path(root.path) for root in settings.REDLINE.roots)
    return [
        checks.Warning(f"The root {path} is configured {number} times.", hint="Configure it once.", id=ROOT_TWICE)
        for path, number in counted.items()
        if number > 1
    ]
