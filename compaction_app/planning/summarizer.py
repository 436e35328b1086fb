"""A summary from a model: one request without tools and without reasoning, and a second one for a divided turn.

Only the conversation is sent. Streamed text is reported to a listener, as with planners.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from compaction_app.core.messages import TextPart, UserMessage
from compaction_app.core.summary_prompt import SYSTEM, SummaryKind, summary_prompt
from compaction_app.providers.client import size_of
from compaction_app.providers.errors import Overflow, ProviderError
from compaction_app.providers.types import Endpoint, Request
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.printable import plural

from .model_registry import ResolvedModel
from .model_request import ModelRequests, RequestListener
from .usage import CHARACTERS_PER_TOKEN, UsageTotals

CUT_OFF: Final = "length"
REFUSED: Final = "refusal"


class SummaryPart(NamedTuple):
    """One request of a summary."""

    kind: SummaryKind
    conversation: str
    output_limit: int
    """Tokens."""
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

    def __init__(self, model: ResolvedModel, endpoint: Endpoint, listener: RequestListener, usage: UsageTotals) -> None:
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
        said = "".join(one.text for one in end.answer.parts if isinstance(one, TextPart))
        text = well_formed(self._requests.redactor.text(said)).strip()
        if not text or end.stop == REFUSED:
            raise ProviderError(
                "no_summary",
                f"{self._model.planner} wrote no summary. Nothing was written to the session.",
                "Ask again, or choose another model.",
            )
        return text, end.stop

    def _require_room(self, part: SummaryPart) -> None:
        request = request_for_summary(self._model, part)
        tokens = size_of(request, self._model.provider.dialect) // CHARACTERS_PER_TOKEN
        if tokens + request.output_limit > self._model.window:
            raise Overflow(
                "summary_too_long",
                f"The conversation has about {plural(tokens, 'token')}, and the window of {self._model.planner} has "
                f"{self._model.window:,}. Nothing was sent.",
                "Choose a model with a larger window.",
            )


def request_for_summary(model: ResolvedModel, part: SummaryPart) -> Request:
    """The request for one part of a summary: no tools, no reasoning."""
    prompt = summary_prompt(part.kind, part.conversation, previous=part.previous, focus=part.focus)
    return Request(
        model=model.name,
        system=SYSTEM,
        tools=(),
        messages=[UserMessage(prompt)],
        output_limit=min(part.output_limit, model.output_limit),
        thinking_style=model.thinking_style,
    )
