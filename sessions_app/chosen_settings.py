"""Settings that are chosen on a page: the value in force, its source, and the line that locks it.

    environment variable, redline.toml ─▶ choice on the settings page ─▶ default

A choice is in force in every process as soon as it is saved.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings

from sessions_app.models import ChosenSetting
from sessions_app.sessionlog.sourced_value import DEFAULT_SOURCE, SourcedValue

CHOSEN: Final = "the settings page"
"""The source of a value that was chosen on a page."""
LINE_LENGTH: Final = 120


@dataclass(frozen=True, slots=True)
class Lock:
    """The place that sets a value, so that it cannot be chosen on a page."""

    source: str
    line: int | None
    """The number of the line in the file; None for a variable."""
    text: str
    """The line; empty for a variable."""


def value_in_force(name: str) -> SourcedValue[Any]:
    """The value of a field of the configuration."""
    source, *merged = settings.REDLINE_SOURCES.get(name) or [DEFAULT_SOURCE]
    if source == DEFAULT_SOURCE:
        chosen = ChosenSetting.objects.filter(name=name).first()
        if chosen is not None:
            return SourcedValue(chosen.value, CHOSEN)
    return SourcedValue(getattr(settings.REDLINE, name), source, tuple(merged))


def choose(name: str, value: object) -> None:
    """Store a choice. It has no effect while the configuration sets the field."""
    ChosenSetting.objects.update_or_create(name=name, defaults={"value": value})


def lock_of(name: str) -> Lock | None:
    """What sets a field outside the pages; None if it can be chosen on one."""
    found = settings.REDLINE_SOURCES.get(name)
    if not found:
        return None
    if found[0] != settings.REDLINE_FILE_NAME:
        return Lock(found[0], None, "")
    try:
        content = (settings.REDLINE_DATA_DIR / settings.REDLINE_FILE_NAME).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        content = ""  # it was read when the server started
    sets = re.compile(rf"\s*{re.escape(name)}\s*=")
    for number, line in enumerate(content.splitlines(), 1):
        if sets.match(line):
            return Lock(found[0], number, line.strip()[:LINE_LENGTH])
    return Lock(found[0], None, "")
