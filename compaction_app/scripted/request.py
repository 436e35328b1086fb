"""A request independent of its dialect: the prompt, earlier answers, and their results.

Conversations are not stored, because each request contains the whole one. Earlier answers are read from the messages,
and the number of turns from the ids of the calls, even if the client omitted old ones.
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
    """A call of an earlier answer; `result` is None if there is none."""

    call_id: str
    name: str
    arguments: Any
    result: str | None = None

    @property
    def result_json(self) -> Mapping[str, Any] | None:
        """The result as a JSON object; None if a note replaces it."""
        try:
            found = json.loads(self.result or "")
        except ValueError:
            return None
        return found if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """One answer, the results of its calls, and the text that followed it."""

    text: str
    calls: Sequence[EarlierCall]
    then: str = ""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool in the request, with the JSON schema of its arguments."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """One request. `tries` is how often the same one was refused or cut before."""

    model: str
    prompt: str
    exchanges: Sequence[EarlierAnswer]
    tools: Sequence[OfferedTool]
    characters: int
    key: str = ""
    tries: int = 0

    @property
    def turn(self) -> int:
        """The number of earlier answers."""
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
        """The JSON object in the prompt's code fence, if there is one."""
        found = _FENCE.search(self.prompt)
        if found is None:
            return None
        try:
            manifest = json.loads(found[1])
        except ValueError:
            return None
        return manifest if isinstance(manifest, dict) else None

    def call_id(self, prefix: str, place: int) -> str:
        """The id of the answer's call at this position: unique, and it encodes the turn."""
        digest = hashlib.sha256(f"{self.prompt}{self.turn}.{place}".encode()).hexdigest()
        return f"{prefix}T{self.turn:05}C{place:03}{digest[:12]}"
