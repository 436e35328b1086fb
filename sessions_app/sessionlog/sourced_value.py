"""PURE: a value with its source, and the choice between several sources in order of precedence."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

Value = TypeVar("Value")
Sourced = TypeVar("Sourced", bound="SourcedValue[Any]")

DEFAULT_SOURCE: Final = "default"


@dataclass(frozen=True, slots=True)
class SourcedValue(Generic[Value]):
    """A value, and its source: a file, a variable, or a description of another place."""

    value: Value
    source: str = DEFAULT_SOURCE
    merged: tuple[str, ...] = ()
    """Further sources whose values are merged into this one."""
    refused: tuple[str, ...] = ()
    """Sources that take precedence, but have a value that cannot be used."""
    unread: tuple[str, ...] = ()
    """Sources that also have a value, which is not used because one of higher precedence was refused."""

    @property
    def is_default(self) -> bool:
        return self.source == DEFAULT_SOURCE


def resolve(offers: Iterable[Sourced], default: Sourced, *, first_decides: bool = False) -> Sourced:
    """The first usable value in order of precedence, else the default.

    A value that cannot be used is None. If `first_decides`, the default applies if the first one is None.
    """
    rest = iter(offers)
    refused: list[str] = []
    for offer in rest:
        if offer.value is not None:
            return replace(offer, refused=tuple(refused))
        refused.append(offer.source)
        if first_decides:
            break
    return replace(default, refused=tuple(refused), unread=tuple(later.source for later in rest))
