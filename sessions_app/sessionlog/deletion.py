"""An approved deletion, as a writer records it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from .targets import Target


class Stats(msgspec.Struct, frozen=True, rename="camel"):
    """The effect of a deletion, in objects (entries and blocks) and in estimated tokens."""

    objects_before: int = 0
    objects_after: int = 0
    objects_deleted: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    percent_reduction: float = 0.0

    def to_json(self) -> dict[str, int | float]:
        """The stats by name; a whole percentage is an integer, as JavaScript prints it."""
        recorded: dict[str, int | float] = msgspec.to_builtins(self)
        if self.percent_reduction.is_integer():
            recorded["percentReduction"] = int(self.percent_reduction)
        return recorded


@dataclass(frozen=True, slots=True)
class Deletion:
    """Exactly what was approved. A commit creates it from a plan that the airlock accepted."""

    targets: tuple[Target, ...]
    protected_entry_ids: tuple[str, ...]
    stats: Stats
