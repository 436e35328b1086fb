"""PURE: the names by which a model may be configured: its own, and without the date of its version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeVar

T = TypeVar("T")

_DATE: Final = re.compile(r"[-@]20\d\d(?:\d{4}|-\d\d-\d\d)$")
"""The date with which providers end the name of a version: `-20250929`, `-2024-08-06`, `@20250929`."""


def undated(model: str) -> str:
    """The name of a model without a date at its end: `claude-sonnet-4-5` of `claude-sonnet-4-5-20250929`."""
    return _DATE.sub("", model)


def of_model(values: Mapping[str, T], model: str) -> T | None:
    """The value of a model in a configuration by model: under its own name, else under the undated one."""
    return values[model] if model in values else values.get(undated(model))
