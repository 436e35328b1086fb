"""Requests to a model, one at a time: pieces are reported on arrival, costs are counted, and a request can be stopped.

    request ─▶ Sent, Retrying, pieces ─▶ reports (`asked`, `retried`, `streamed`) ─▶ the whole answer (`answered`)

`llm_planner` lists the events. Streamed text is buffered: adjacent pieces of one kind are joined. A provider could echo
its key, so it is hidden in everything that is reported, even if it arrives in pieces; the calls run unchanged.

A `Summarizer` requests a summary: one request without tools and without reasoning, and a second one for a divided turn.
Only the conversation is sent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.conf import settings

from compaction_app.core.loop import RequestListener
from compaction_app.core.messages import TextPart, UserMessage
from compaction_app.core.states import EventKind
from compaction_app.core.summary_prompt import SYSTEM, SummaryKind, summary_prompt
from compaction_app.providers import types
from compaction_app.providers.addresses import is_loopback
from compaction_app.providers.api_keys import LONG_ENOUGH
from compaction_app.providers.client import AnswerStream, Patience, size_of
from compaction_app.providers.error_mapping import SHOWN_OF_KEY, KeyForms, Overflow, ProviderError
from sessions_app.sessionlog.errors import Stopped
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.text import plural

from .model_registry import ResolvedModel

STOP_CHECK_SECONDS: Final = 0.05
"""How often a stop is checked while nothing arrives."""
ROW_SECONDS: Final = 0.1
"""The shortest time between two reports of streamed text, except at the end of an answer."""
Head = tuple[str, *tuple[int, ...]]


class ModelRequests:
    """Sends requests to one model. It checks many times a second whether its listener stops it."""

    def __init__(
        self, model: ResolvedModel, endpoint: types.Endpoint, listener: RequestListener, usage: types.UsageTotals
    ) -> None:
        self._model, self._endpoint = model, endpoint
        self._listener, self._usage = listener, usage
        self._patience = patience_for(endpoint)
        self.redactor = SecretRedactor(endpoint.key)
        self._sent = 0
        self._turn = 0

    def ask(self, request: types.Request, turn: int) -> tuple[types.AnswerEnd, int]:
        """The answer to a request, the `turn`th of its conversation, and the tokens of the request; 0 if the provider
        reported none. Raises ProviderError and Stopped."""
        self._turn = turn
        began, pieces = time.monotonic(), StreamBuffer(self.redactor)
        try:
            with AnswerStream(self._endpoint, request, self._patience) as stream:
                while True:
                    piece = stream.next(min(STOP_CHECK_SECONDS, pieces.wait))
                    if isinstance(piece, types.AnswerEnd):
                        return self._answered(piece, pieces, began)
                    self._take_piece(piece, pieces)
        except (ProviderError, Stopped):
            if pieces.characters:  # a part of the answer may cost something
                self._usage.add_answer(None, self._sent, pieces.characters, self._model.prices)
                self.report(EventKind.STREAMED, {"turn": turn, "pieces": pieces.take(last=True)})
            raise

    def report(self, kind: str, data: dict[str, Any]) -> None:
        self._listener.on_event(kind, self.redactor.value(data), self._usage.to_json())

    def _take_piece(self, piece: types.Piece | None, pieces: StreamBuffer) -> None:
        if isinstance(piece, types.Sent):
            self._sent = piece.characters
            self._usage.add_request(piece.characters)
            self.report(EventKind.ASKED, {"turn": self._turn, "characters": piece.characters})
        elif isinstance(piece, types.Retrying):
            why, seconds = well_formed(piece.why), round(piece.seconds, 1)
            retried = {"turn": self._turn, "attempt": piece.attempt, "seconds": seconds, "why": why}
            self.report(EventKind.RETRIED, retried)
        elif piece is not None:
            before = pieces.characters
            pieces.add(piece)
            self._usage.add_received(pieces.characters - before)
        if pieces.is_due:
            self.report(EventKind.STREAMED, {"turn": self._turn, "pieces": pieces.take()})
        if self._listener.is_stopped():
            raise Stopped

    def _answered(self, end: types.AnswerEnd, pieces: StreamBuffer, began: float) -> tuple[types.AnswerEnd, int]:
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
        return end, reported if end.usage is not None else 0


def patience_for(endpoint: types.Endpoint) -> Patience:
    """The timeouts for a provider. A model on this machine may read its prompt for minutes."""
    whole = settings.REDLINE.answer_minutes * 60
    if is_loopback(endpoint.base_url):
        return Patience(first_byte=900, between=300, whole=whole)
    return Patience(whole=whole)


# ---- streaming ----------------------------------------------------------------------------------------------


class SecretRedactor:
    """Hides a key and its encoded forms (`error_mapping.KeyForms`) in texts: the key's last characters are shown.

    A short key is not a secret: local servers accept any word.
    """

    def __init__(self, key: str) -> None:
        self._key = key if len(key) >= LONG_ENOUGH else ""
        self._shown = f"…{key[-SHOWN_OF_KEY:]}"
        self._forms = KeyForms(self._key)

    def text(self, text: str) -> str:
        if not self._key:
            return text
        return self._forms.hide(text.replace(self._key, self._shown), self._shown)

    def value(self, value: Any) -> Any:
        """Hides the key in all texts of a JSON value."""
        if not self._key:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        if isinstance(value, dict):
            return {self.text(str(name)): self.value(one) for name, one in value.items()}
        return value

    def split(self, text: str) -> tuple[str, str]:
        """The part of the text that can be shown now, and its end if it could be the beginning of the key."""
        if not self._key:
            return text, ""
        hidden = self.text(text)
        longest = min(len(self._key) - 1, len(hidden))
        exact = next((size for size in range(longest, 0, -1) if self._key.startswith(hidden[-size:])), 0)
        held = max(exact, self._forms.held(hidden))
        return hidden[: len(hidden) - held], hidden[len(hidden) - held :]


class StreamBuffer:
    """The received part of one answer that is not reported yet."""

    def __init__(self, redactor: SecretRedactor) -> None:
        self._redactor = redactor
        self._heads: list[Head] = []
        self._texts: list[list[str]] = []
        self._held: dict[Head, str] = {}
        """By part: the end of a text that could continue as the key."""
        self._since: float | None = None
        self.characters = 0
        """All received characters, reported or not."""

    def add(self, piece: types.Piece) -> None:
        head, text = _head_and_text(piece)
        self.characters += len(text)
        if self._since is None:
            self._since = time.monotonic()
        # Text that was held back precedes the text that follows it; the calls of an answer may be interleaved.
        for other in [other for other in self._held if other != head and other[0] in ("text", "thought")]:
            self._put(other, self._held.pop(other))
        if head[0] == "call":
            # A name arrives complete.
            self._put(head, self._redactor.text(text))
            return
        shown, held = self._redactor.split(self._held.pop(head, "") + text)
        if held:
            self._held[head] = held
        self._put(head, shown)

    def _put(self, head: Head, text: str) -> None:
        if self._heads and self._heads[-1] == head and head[0] != "call":
            self._texts[-1].append(text)
        elif text:
            self._heads.append(head)
            self._texts.append([text])

    @property
    def wait(self) -> float:
        """Seconds until the received text is due to be reported."""
        return math.inf if self._since is None else max(0.0, self._since + ROW_SECONDS - time.monotonic())

    @property
    def is_due(self) -> bool:
        return self._since is not None and self.wait <= 0

    def take(self, *, last: bool = False) -> list[list[Any]]:
        """The pieces to be reported now; with `last`, all of them."""
        if last:
            for head, held in self._held.items():
                self._put(head, held)
            self._held = {}
        taken = [[*head, well_formed("".join(texts))] for head, texts in zip(self._heads, self._texts, strict=True)]
        self._heads, self._texts, self._since = [], [], None
        return taken


def _head_and_text(piece: types.Piece) -> tuple[Head, str]:
    if isinstance(piece, types.TextPiece):
        return ("text",), piece.text
    if isinstance(piece, types.ThoughtPiece):
        return ("thought",), piece.text
    if isinstance(piece, types.CallBegun):
        return ("call", piece.index), piece.name
    assert isinstance(piece, types.ArgumentsPiece)  # noqa: S101  # the others are not parts of an answer
    return ("arguments", piece.index), piece.text


CUT_OFF: Final = "length"
REFUSED: Final = "refusal"


class SummaryPart(NamedTuple):
    """One request of a summary."""

    kind: SummaryKind
    conversation: str
    output_limit: int
    """The maximum length of the answer, in tokens."""
    previous: str = ""
    """The summary that it updates."""
    focus: str = ""


class WrittenSummary(NamedTuple):
    """The texts of a summary, one for each request."""

    texts: Mapping[SummaryKind, str]
    is_cut: bool
    """Whether the limit of the model's output truncated the summary."""


class Summarizer:
    """Has a model write summaries. It checks many times a second whether its listener stops it."""

    def __init__(
        self, model: ResolvedModel, endpoint: types.Endpoint, listener: RequestListener, usage: types.UsageTotals
    ) -> None:
        self._model = model
        self._requests = ModelRequests(model, endpoint, listener, usage)

    def write(self, parts: Sequence[SummaryPart]) -> WrittenSummary:
        """The summary of a range: one request for each part.

        Raises ProviderError and Stopped; `too_long` if a part does not fit into the model's window.
        """
        for part in parts:
            self._require_room(part)
        texts: dict[SummaryKind, str] = {}
        is_cut = False
        for number, part in enumerate(parts, 1):
            texts[part.kind], stop = self._ask(part, number)
            is_cut = is_cut or stop == CUT_OFF
        return WrittenSummary(texts, is_cut)

    def _ask(self, part: SummaryPart, number: int) -> tuple[str, str]:
        """The text of one part, and why the answer ended."""
        end, _ = self._requests.ask(request_for_summary(self._model, part), number)
        answer = "".join(one.text for one in end.answer.parts if isinstance(one, TextPart))
        text = well_formed(self._requests.redactor.text(answer)).strip()
        if not text or end.stop == REFUSED:
            raise ProviderError(
                "no_summary",
                f"{self._model.planner} wrote no summary. Nothing was written to the session.",
                "Ask again, or choose another model.",
            )
        return text, end.stop

    def _require_room(self, part: SummaryPart) -> None:
        request = request_for_summary(self._model, part)
        tokens = size_of(request, self._model.provider.dialect) // types.CHARACTERS_PER_TOKEN
        if tokens + request.output_limit > self._model.window:
            raise Overflow(
                "summary_too_long",
                f"The conversation has about {plural(tokens, 'token')}, and the window of {self._model.planner} has "
                f"{self._model.window:,}. Nothing was sent.",
                "Choose a model with a larger window.",
            )


def request_for_summary(model: ResolvedModel, part: SummaryPart) -> types.Request:
    """The request for one part of a summary: no tools, no reasoning."""
    prompt = summary_prompt(part.kind, part.conversation, previous=part.previous, focus=part.focus)
    return types.Request(
        model=model.name,
        system=SYSTEM,
        tools=(),
        messages=[UserMessage(prompt)],
        output_limit=min(part.output_limit, model.output_limit),
        thinking_style=model.thinking_style,
    )
