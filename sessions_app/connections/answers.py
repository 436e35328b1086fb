"""What the server answers to a bridge that applies nothing itself, as docs/handshake.md describes it."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from sessions_app.sessionlog.printable import printable

WAIT: Final = "wait"
MESSAGE_CHARACTERS: Final = 2_000
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class ServerAnswer(msgspec.Struct, frozen=True):
    """An answer to a question, a poll or a report. Fields that a hook does not need are left out."""

    do: Literal["wait", "compact", "continue", "stop"]
    message: str
    id: Annotated[int, msgspec.Meta(ge=0)] = 0
    seconds: Seconds = 0
    poll: Annotated[float, msgspec.Meta(ge=0.05, le=60)] = 0.5
    grace: Seconds = 30


class _Error(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Error


def answer_in(body: bytes) -> ServerAnswer:
    """The answer in a body. Raises ValueError if it is something else."""
    found = msgspec.json.decode(body, type=ServerAnswer)
    return msgspec.structs.replace(found, message=_one_line(found.message))


def error_in(body: bytes) -> str:
    """The message of an error; empty if a body has none."""
    try:
        return _one_line(msgspec.json.decode(body, type=_Refusal).error.message)
    except ValueError:
        return ""


def _one_line(text: str) -> str:
    return printable(" ".join(text[:MESSAGE_CHARACTERS].split()))
