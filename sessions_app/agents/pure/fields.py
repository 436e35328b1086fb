"""Fields of parsed JSON, read as the type that is wanted: a value of another type reads as absent.

Sessions are damaged, and hostile: one wrong field must not lose a line. JSON's true and false are no numbers here,
although they are to Python.
"""

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from sessions_app.sessionlog.jsjson import parse, well_formed

_YEAR_10000: Final = 253_402_300_800_000


def object_in(raw: bytes) -> dict[str, Any] | None:
    """The object in these bytes; None if they are not JSON, or another value."""
    try:
        found = parse(raw)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def as_mapping(value: object) -> dict[str, Any]:
    """The value if it is an object; otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def mapping(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object; empty if it is absent."""
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def items(data: Mapping[str, Any], name: str) -> list[Any]:
    """The items of an array; none if it is absent."""
    value = data.get(name)
    return value if isinstance(value, list) else []


def objects(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Those items of an array that are objects."""
    return [item for item in items(data, name) if isinstance(item, dict)]


def texts(data: Mapping[str, Any], name: str) -> list[str]:
    """Those items of an array that are texts, exactly as they were recorded."""
    return [item for item in items(data, name) if isinstance(item, str)]


def text(data: Mapping[str, Any], name: str) -> str:
    """A text exactly as it was recorded, which may have lone surrogates; empty if it is absent."""
    value = data.get(name)
    return value if isinstance(value, str) else ""


def text_or_none(data: Mapping[str, Any], name: str) -> str | None:
    """As `text`, but None if it is absent."""
    value = data.get(name)
    return value if isinstance(value, str) else None


def stored_text_or_none(data: Mapping[str, Any], name: str) -> str | None:
    """As `stored_text`, but None if it is absent."""
    value = data.get(name)
    return well_formed(value) if isinstance(value, str) else None


def stored_text(data: Mapping[str, Any], name: str) -> str:
    """A text that can be stored: U+FFFD takes the place of lone surrogates. Empty if it is absent."""
    value = data.get(name)
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else well_formed(value)


def identifier(data: Mapping[str, Any], name: str) -> str:
    """A text used as an identifier; empty if it is absent, or cannot be stored exactly."""
    value = text(data, name)
    return value if value.isascii() or well_formed(value) == value else ""


def word(data: Mapping[str, Any], name: str) -> str:
    """A stored text that often repeats, such as a type, a role or a tool; interned to save memory."""
    value = data.get(name)
    if not isinstance(value, str):
        return ""
    return sys.intern(value if value.isascii() else well_formed(value))


def number(data: Mapping[str, Any], name: str) -> int | float | None:
    """A number; None if it is absent."""
    value = data.get(name)
    return value if type(value) is int or type(value) is float else None


def integer(data: Mapping[str, Any], name: str) -> int | None:
    """A number that is written without a fraction and an exponent; None if it is absent."""
    value = data.get(name)
    return value if type(value) is int else None


def whole_number(data: Mapping[str, Any], name: str) -> int | None:
    """A non-negative integer of at most 53 bits; None if it is absent or another number."""
    value = integer(data, name)
    return value if value is not None and 0 <= value < 2**53 else None


def tokens(data: Mapping[str, Any], name: str) -> int:
    """A number of tokens; 0 if it is absent, or too large to be one."""
    value = number(data, name)
    return int(value) if value is not None and abs(value) < 2**53 else 0


def moment(data: Mapping[str, Any], name: str) -> datetime | None:
    """A time in milliseconds since 1970; None if it is absent, or after the year 9999."""
    value = number(data, name)
    return datetime.fromtimestamp(value / 1000, UTC) if value is not None and 0 < value < _YEAR_10000 else None


def has_type(value: object, kind: str) -> bool:
    """Whether a value is an object with this `type`."""
    return isinstance(value, dict) and value.get("type") == kind


def model(provider: object, model_id: object) -> tuple[str, str] | None:
    """The provider and the id of a model; None if one of them is not a text. Equal pairs share one object in memory."""
    return _model(provider, model_id) if isinstance(provider, str) and isinstance(model_id, str) else None


@lru_cache(maxsize=256)
def _model(provider: str, model_id: str) -> tuple[str, str]:
    return well_formed(provider), well_formed(model_id)
