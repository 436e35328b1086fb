"""A request independent of its dialect, the checks that both services make, and the moves that a script can make.

Conversations are not stored, because each request contains the whole one. The prompt, earlier answers and their results
are read from the messages, and the number of turns from the ids of the calls, even if the client omitted old ones.

A fault is a sentence for the 400 response; the checks of fields, tools and their JSON schemas raise it as
`RequestFault`, and the app answers with it.

    Play(parts)       an answer, streamed or whole; `breaks` ends it early
    Refuse(kind)      an HTTP error in the words of the real service
    Silence           no byte is sent until the client gives up
    Cut               the connection is closed without a byte
    Foreign           a response of a server that is not a provider

Thinking carries proof that it is returned unchanged: a signature of its text, and for dialects without signatures a
checksum inside the text.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

_TYPES: Final = {"object", "array", "string", "integer", "number", "boolean", "null"}
_KEYWORDS: Final = {
    *("type", "description", "title", "default", "examples", "enum", "const", "format", "pattern"),
    *("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    *("items", "minItems", "maxItems", "uniqueItems", "minLength", "maxLength"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("anyOf", "oneOf", "allOf", "$ref", "$defs"),
}


class RequestFault(Exception):
    """An error in a request; `param` is its location, as in OpenAI's errors."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


def require(is_right: object, message: str, param: str | None = None) -> None:
    """Raise RequestFault unless the condition is met."""
    if not is_right:
        raise RequestFault(message, param)


def is_whole(value: object) -> bool:
    """Whether it is an integer, which excludes true and false."""
    return isinstance(value, int) and not isinstance(value, bool)


def known_only(found: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Raise RequestFault if there is a field that the service does not know."""
    for name in found:
        require(name in known, f"{where}{name}: Extra inputs are not permitted", f"{where}{name}")


def check_tool_name(name: object, where: str, longest: int) -> None:
    """Raise RequestFault if the name is not a valid tool name."""
    is_right = isinstance(name, str) and re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{longest}}}", name)
    require(is_right, f"{where}: String should match pattern '^[a-zA-Z0-9_-]{{1,{longest}}}$'", where)


def check_schema(schema: object, where: str, *, is_strict: bool) -> None:
    """Raise RequestFault if a tool's JSON schema is invalid; strict ones allow no additional properties."""
    require(
        isinstance(schema, dict) and schema.get("type") == "object", f"{where}.type: Input should be 'object'", where
    )
    _check_schema(schema, where, is_strict)


def _check_schema(schema: object, where: str, is_strict: bool) -> None:
    if not isinstance(schema, dict):
        raise RequestFault(f"{where}: JSON schema is invalid: it is not an object", where)
    for keyword in schema:
        require(keyword in _KEYWORDS, f"{where}: JSON schema is invalid: unknown keyword {keyword!r}", where)
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    has_choice = bool({"anyOf", "oneOf", "allOf", "$ref", "enum", "const"} & schema.keys())
    require(has_choice or set(kinds) <= _TYPES, f"{where}: JSON schema is invalid: type {kind!r}", where)
    require(isinstance(schema.get("enum", []), list), f"{where}: JSON schema is invalid: enum is not a list", where)
    if "object" in kinds:
        _check_object(schema, where, is_strict)
    if "array" in kinds:
        require("items" in schema, f"{where}: array schema missing items", where)
        _check_schema(schema["items"], f"{where}.items", is_strict)
    for keyword in ("anyOf", "oneOf", "allOf"):
        for place, one in enumerate(schema.get(keyword, ())):
            _check_schema(one, f"{where}.{keyword}.{place}", is_strict)


def _check_object(schema: Mapping[str, Any], where: str, is_strict: bool) -> None:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    require(isinstance(properties, dict), f"{where}: JSON schema is invalid: properties is not an object", where)
    require(
        isinstance(required, list) and set(required) <= properties.keys(),
        f"{where}: JSON schema is invalid: required lists an unknown property",
        where,
    )
    if is_strict:
        require(
            schema.get("additionalProperties") is False,
            f"{where}: 'additionalProperties' is required to be supplied and to be false",
            where,
        )
    for name, one in properties.items():
        _check_schema(one, f"{where}.properties.{name}", is_strict)


# ---- a request -------------------------------------------------------------------------------------------

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


# ---- moves -----------------------------------------------------------------------------------------------

Dialect = Literal["anthropic", "openai"]


@dataclass(frozen=True, slots=True)
class _Words:
    text: str

    @property
    def length(self) -> int:
        """The length in characters."""
        return len(self.text)


@dataclass(frozen=True, slots=True)
class Say(_Words):
    """Text of the answer."""


@dataclass(frozen=True, slots=True)
class Think(_Words):
    """Reasoning that is shown, and signed if the dialect signs it."""


@dataclass(frozen=True, slots=True)
class Sealed(_Words):
    """Reasoning that is not shown, only passed through."""


@dataclass(frozen=True, slots=True)
class CallTool:
    """A tool call; `arguments` is JSON text, or a model's mistake for it."""

    name: str
    arguments: str = "{}"

    @property
    def length(self) -> int:
        """The length of its name and arguments, in characters."""
        return len(self.arguments) + len(self.name)


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes of a stream. `ends_call`: they complete a call."""

    data: bytes
    ends_call: bool = False


Part = Say | Think | Sealed | CallTool
Stop = Literal["calls", "end", "length", "refusal"]


@dataclass(frozen=True, slots=True)
class Break:
    """How an answer ends early, and where: before any content, inside its last call, or after it."""

    how: Literal["error", "cut", "stall"]
    where: Literal["start", "inside", "after"]


@dataclass(frozen=True, slots=True)
class Play:
    """An answer, and how it is transmitted."""

    parts: Sequence[Part]
    stop: Stop
    breaks: Break | None = None
    fragment: int = 24
    """The number of characters in one delta."""
    pieces: int = 0
    """The number of bytes in one write; 0: each event is one write."""
    pings: bool = False
    """Whether keep-alives are sent between all events."""
    whole_calls: bool = False
    """Whether a call is sent in one piece, and in OpenAI's dialect without id and index."""
    reports_usage: bool = True
    priced: bool = False
    """Whether OpenAI's usage has a cost, as in OpenRouter."""
    details: bool = False
    """Whether OpenAI's reasoning is `reasoning_details`, as in OpenRouter, or `reasoning_content`."""
    marks_end: bool = True
    """Whether OpenAI's stream ends with [DONE]."""
    streams: bool = True
    """Whether a stream is sent if one is requested."""
    gap: float = 0.0
    """The pause after each call, in seconds."""
    step: float = 0.0
    """The pause after each delta, in seconds."""


Kind = Literal["invalid", "key", "model", "path", "overloaded", "limited", "quota", "overflow", "too-large", "broken"]


@dataclass(frozen=True, slots=True)
class Refuse:
    """An HTTP error. `message` replaces the service's own words for this kind."""

    kind: Kind
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Silence:
    """Nothing is sent until the client disconnects."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is closed without a byte."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A complete response that no provider gives."""

    status: int
    content_type: str
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)


Move = Play | Refuse | Silence | Cut | Foreign

# ---- thinking with proof of integrity ----------------------------------------------------------------------

_CHECKSUM: Final = re.compile(r"(.*) \[([0-9a-f]{8})\]", re.DOTALL)


def checked(text: str) -> str:
    """The text followed by its checksum."""
    return f"{text} [{_digest(text)[:8]}]"


def is_checked(text: str) -> bool:
    """Whether the text was made by `checked`."""
    found = _CHECKSUM.fullmatch(text)
    return found is not None and _digest(found[1])[:8] == found[2]


def signature_of(text: str) -> str:
    """A service's signature of a thought."""
    return base64.b64encode(hashlib.sha512(f"signed {text}".encode()).digest()).decode()


def sealed(text: str) -> str:
    """A thought that only the service can read."""
    return base64.b64encode(f"{_digest(text)}{text}".encode()).decode()


def is_sealed(data: str) -> bool:
    """Whether the data was made by `sealed`."""
    try:
        opened = base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    return opened[:64] == _digest(opened[64:])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def fragments(text: str, length: int) -> list[str]:
    """The text in pieces of this many characters; none for an empty text."""
    return [text[start : start + length] for start in range(0, len(text), length)]


def shown_until(parts: Sequence[Part], breaks: Break | None) -> tuple[Sequence[Part], bool]:
    """The parts that are played, and whether the last of them breaks off half-way."""
    if breaks is None:
        return parts, False
    if breaks.where == "start":
        return (), False
    calls = [place for place, part in enumerate(parts) if isinstance(part, CallTool)]
    last = calls[-1] if calls else len(parts) - 1
    return parts[: last + 1], breaks.where == "inside"
