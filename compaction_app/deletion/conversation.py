"""What was said between a planner that is a model and its tools, in no provider's dialect.

    Told(prompt) → Answer → Results → Answer → Results → … → Answer (stops) → Told(nudge) → Answer …

A model's own parts are kept as they came: reasoning goes back to its provider unchanged, in its place. Arguments are
the JSON text that was streamed, whatever it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Said:
    """Text of the model. It is shown, and never read as a plan."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning: its text, and what goes back to the provider for it, unchanged."""

    text: str
    block: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A tool call as the model made it; `arguments` is JSON text as it came, empty for none."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the model, its parts in order."""

    parts: Sequence[Said | Thought | Asked]

    @property
    def calls(self) -> list[Asked]:
        return [part for part in self.parts if isinstance(part, Asked)]


@dataclass(frozen=True, slots=True)
class Result:
    """What one call gave, as the model is told it."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Results:
    """The results of all calls of one answer, in their order."""

    results: Sequence[Result]


@dataclass(frozen=True, slots=True)
class Told:
    """What the loop says to the model: the prompt, or a nudge."""

    text: str


Message = Told | Answer | Results
