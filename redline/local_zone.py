"""The time zone of this computer, by its name: Django needs one, and pages show times in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_LINK: Final = Path("/etc/localtime")
_DATABASE: Final = "/zoneinfo/"


def local_zone(environment: Mapping[str, str] = os.environ, link: Path = _LINK) -> str:
    """The zone that `TZ` names, or the one that the computer is set to; UTC if that has no known name."""
    if environment.get("TZ"):
        return _known(environment["TZ"].removeprefix(":"))
    _, _, name = os.path.realpath(link).partition(_DATABASE)
    return _known(name)


def _known(name: str) -> str:
    try:
        return ZoneInfo(name).key
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return "UTC"
