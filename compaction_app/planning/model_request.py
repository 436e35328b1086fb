"""Requests to a model, one at a time: what streams is reported on arrival, its cost is counted, and it can be stopped.

    request ─▶ Sent, Retrying, pieces ─▶ reports (`asked`, `retried`, `streamed`) ─▶ the whole answer (`answered`)

`llm_planner` lists the events. The key of the provider is hidden in everything that is reported.
"""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple, Protocol

from django.conf import settings

from compaction_app.core.states import EventKind
from compaction_app.providers.addresses import is_loopback
from compaction_app.providers.answer_stream import AnswerStream
from compaction_app.providers.client import Patience
from compaction_app.providers.errors import ProviderError
from compaction_app.providers.types import AnswerEnd, Endpoint, Piece, Request, Retrying, Sent
from sessions_app.sessionlog.errors import Stopped
from sessions_app.sessionlog.jsjson import well_formed

from .model_registry import ResolvedModel
from .stream_buffer import SecretRedactor, StreamBuffer
from .usage import UsageTotals

STOP_CHECK_SECONDS: Final = 0.05
"""How often a stop is checked while nothing comes."""


class RequestListener(Protocol):
    """Receives the events of requests, and can stop them."""

    def on_event(self, kind: str, data: dict[str, Any], usage: dict[str, Any]) -> None:
        """One event, with the totals of what was sent and received."""

    def is_stopped(self) -> bool: ...


class Answered(NamedTuple):
    """A whole answer, and the tokens of its request; 0 if the provider reported none."""

    end: AnswerEnd
    tokens_in: int


class ModelRequests:
    """Sends requests to one model. It checks many times a second whether its listener stops it."""

    def __init__(self, model: ResolvedModel, endpoint: Endpoint, listener: RequestListener, usage: UsageTotals) -> None:
        self._model, self._endpoint = model, endpoint
        self._listener, self._usage = listener, usage
        self._patience = patience_for(endpoint)
        self.redactor = SecretRedactor(endpoint.key)
        self._sent = 0
        self._turn = 0

    def ask(self, request: Request, turn: int) -> Answered:
        """The answer to a request, the `turn`th of its conversation. Raises ProviderError and Stopped."""
        self._turn = turn
        began, pieces = time.monotonic(), StreamBuffer(self.redactor)
        try:
            with AnswerStream(self._endpoint, request, self._patience) as stream:
                while True:
                    piece = stream.next(min(STOP_CHECK_SECONDS, pieces.wait))
                    if isinstance(piece, AnswerEnd):
                        return self._answered(piece, pieces, began)
                    self._take_piece(piece, pieces)
                    self._require_not_stopped()
        except (ProviderError, Stopped):
            self._broke_off(pieces)
            raise

    def _require_not_stopped(self) -> None:
        if self._listener.is_stopped():
            raise Stopped

    def report(self, kind: str, data: dict[str, Any]) -> None:
        self._listener.on_event(kind, self.redactor.value(data), self._usage.to_json())

    def _take_piece(self, piece: Piece | None, pieces: StreamBuffer) -> None:
        if isinstance(piece, Sent):
            self._sent = piece.characters
            self._usage.add_request(piece.characters)
            self.report(EventKind.ASKED, {"turn": self._turn, "characters": piece.characters})
        elif isinstance(piece, Retrying):
            self.report(EventKind.RETRIED, self._retried(piece))
        elif piece is not None:
            before = pieces.characters
            pieces.add(piece)
            self._usage.add_received(pieces.characters - before)
        if pieces.is_due:
            self.report(EventKind.STREAMED, {"turn": self._turn, "pieces": pieces.take()})

    def _retried(self, piece: Retrying) -> dict[str, Any]:
        return {
            "turn": self._turn,
            "attempt": piece.attempt,
            "seconds": round(piece.seconds, 1),
            "why": well_formed(piece.why),
        }

    def _broke_off(self, pieces: StreamBuffer) -> None:
        """Record what came of an incomplete answer, and what it may have cost."""
        if pieces.characters:
            self._usage.add_answer(None, self._sent, pieces.characters, self._model.prices)
            self.report(EventKind.STREAMED, {"turn": self._turn, "pieces": pieces.take(last=True)})

    def _answered(self, end: AnswerEnd, pieces: StreamBuffer, began: float) -> Answered:
        taken = pieces.take(last=True)
        if taken:
            self.report(EventKind.STREAMED, {"turn": self._turn, "pieces": taken})
        self._usage.add_received(end.characters - pieces.characters)
        added = self._usage.add_answer(end.usage, self._sent, end.characters, self._model.prices)
        self.report(
            EventKind.ANSWERED,
            {
                "turn": self._turn,
                "calls": len(end.answer.calls),
                "stop": well_formed(end.stop),
                "characters": end.characters,
                "ms": round((time.monotonic() - began) * 1000),
                **added,
            },
        )
        reported = added["input"] + added["cacheRead"] + added["cacheWrite"]
        return Answered(end, reported if end.usage is not None else 0)


def patience_for(endpoint: Endpoint) -> Patience:
    """How long to wait for a provider. A model on this machine may read its prompt for minutes."""
    whole = settings.REDLINE.answer_minutes * 60
    if is_loopback(endpoint.base_url):
        return Patience(first_byte=900, between=300, whole=whole)
    return Patience(whole=whole)
