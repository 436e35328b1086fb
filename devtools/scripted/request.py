"""A request as a script hears it, in no dialect: the prompt, what was answered, and what came back.

Nothing of a conversation is remembered: all of it stands in the request. What was answered before is known from the
messages, and how far the conversation is from the ids of the calls, also where the client left old ones out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_FENCE: Final = re.compile(r"^```json\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
_TURN: Final = re.compile(r"(?:toolu_01|call_)T(\d{5})C\d{3}[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class EarlierCall:
    """A call that was answered before; `result` is None where none has come."""

    call_id: str
    name: str
    arguments: Any
    result: str | None = None

    @property
    def result_json(self) -> Mapping[str, Any] | None:
        """The result as the JSON object that it is; None for a note in its place."""
        try:
            found = json.loads(self.result or "")
        except ValueError:
            return None
        return found if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """One answer, the results of its calls, and what was result_json after it."""

    text: str
    calls: Sequence[EarlierCall]
    then: str = ""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that is offered, with the JSON schema of its arguments."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """One request. `tries` counts how often the same one was refused or cut before."""

    model: str
    prompt: str
    exchanges: Sequence[EarlierAnswer]
    tools: Sequence[OfferedTool]
    characters: int
    key: str = ""
    tries: int = 0

    @property
    def turn(self) -> int:
        """How many answers were given before this one."""
        found = [_TURN.fullmatch(call.call_id) for one in self.exchanges for call in one.calls]
        return max([len(self.exchanges), *(int(turn[1]) + 1 for turn in found if turn)])

    @property
    def is_first(self) -> bool:
        return not self.exchanges

    @property
    def calls(self) -> list[EarlierCall]:
        """All calls of the conversation so far, in order."""
        return [call for one in self.exchanges for call in one.calls]

    @property
    def manifest(self) -> Mapping[str, Any] | None:
        """The JSON object in the prompt's fence, where there is one."""
        found = _FENCE.search(self.prompt)
        if found is None:
            return None
        try:
            manifest = json.loads(found[1])
        except ValueError:
            return None
        return manifest if isinstance(manifest, dict) else None

    def call_id(self, prefix: str, place: int) -> str:
        """The id of the answer's call at this place: it tells the turn, and no other call has it."""
        digest = hashlib.sha256(f"{self.prompt}{self.turn}.{place}".encode()).hexdigest()
        return f"{prefix}T{self.turn:05}C{place:03}{digest[:12]}"
