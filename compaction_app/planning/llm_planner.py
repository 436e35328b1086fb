"""An LLM planner: it sends requests over the network, and acts only through the tools.

    prompt ─▶ request ─▶ pieces, reported on arrival ─▶ answer ─▶ its calls run in the loop ─▶ results ─▶ request …

| event      | reports                                                                    |
|------------|----------------------------------------------------------------------------|
| `asked`    | a request is being sent: its length                                        |
| `retried`  | the provider could not answer, and the request is repeated after a while   |
| `streamed` | the text, reasoning, calls and arguments of a tenth of a second            |
| `answered` | the answer is complete: its calls, tokens and cost                         |
| `trimmed`  | old results were dropped from the conversation, to stay within the window  |

The calls of an incomplete answer are not run. The conversation lives as long as its run's worker: a resumed run begins
a new one, with its deletions so far.

`measure_first_request` builds the first request like that of a run and measures it: it is the data that would leave the
machine. Nothing is sent, and no request is made to a model before a form has shown this. The request is built from the
index; the only texts read are those at the start of the manifest's entries.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from compaction_app.core import messages
from compaction_app.core.loop import Exhausted, PlannerTurn, Report, RequestListener
from compaction_app.core.prompt import MANIFEST_ENTRIES, SYSTEM, manifest_of, user_prompt
from compaction_app.core.states import EventKind
from compaction_app.core.stats import Budget
from compaction_app.core.tools import TOOL_SCHEMAS, ToolCall
from compaction_app.core.transcript import Transcript
from compaction_app.providers.client import size_of
from compaction_app.providers.error_mapping import Overflow
from compaction_app.providers.types import CHARACTERS_PER_TOKEN, AnswerEnd, Endpoint, Request, UsageTotals
from sessions_app.index.context_window_lookup import ContextWindowLookup
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Stats, Target
from sessions_app.sessionlog.jsjson import well_formed

from .model_registry import ResolvedModel
from .model_request import ModelRequests, SecretRedactor
from .snapshots import open_snapshot_texts, prepare_snapshot

TURNS: Final = 200
"""The maximum number of requests: a model that has not finished by then will not finish."""
FRUITLESS_TURNS: Final = 12
"""The maximum number of consecutive turns in which every call was refused."""
OUTPUT_PART: Final = 4
"""The divisor of the window that gives the maximum length of an answer."""
MARGIN_PART: Final = 20
FIRST_GUESS: Final = 2.5
"""Characters per token, until the provider has reported a count; the guess is low, so that the window is not
exceeded."""
REASON_CHARACTERS: Final = 300
TOOLS_LENGTH: Final = len(json.dumps([[tool.name, tool.description, tool.parameters] for tool in TOOL_SCHEMAS]))
CUT_OFF: Final = "Your last answer reached the output limit and was cut off. Ask for less in one turn."


class LLMPlanner:
    """Plans with a model. It checks many times a second whether its listener stops it."""

    def __init__(
        self,
        model: ResolvedModel,
        endpoint: Endpoint,
        thinking: str,
        listener: RequestListener,
        usage: UsageTotals,
    ) -> None:
        self._model, self._thinking = model, thinking
        self._requests = ModelRequests(model, endpoint, listener, usage)
        self.turn = 0
        """The number of requests so far."""
        self._fruitless = 0
        self._ratio = FIRST_GUESS
        self._conversation = messages.Conversation("")
        self._calls: list[messages.CallPart] = []
        self._stop = ""

    @property
    def name(self) -> str:
        return self._model.planner

    def begin(self, transcript: Transcript, budget: Budget, chosen: int) -> None:
        """Make the prompt for a run that has already chosen this many targets."""
        prompt, _ = prompt_for(self._model, transcript, budget, chosen)
        self._conversation = messages.Conversation(prompt)

    def next_turn(self, report: Report) -> PlannerTurn:
        """The model's next calls. Raises ProviderError, Stopped and Exhausted."""
        self._take_results(report)
        if self.turn >= TURNS:
            raise Exhausted(f"The model has not finished after {TURNS} requests: planning ends here.")
        if self._fruitless >= FRUITLESS_TURNS:
            raise Exhausted(
                f"Every call of the model's last {FRUITLESS_TURNS} answers was refused: planning ends here."
            )
        self.turn += 1
        self._fit(room_in(self._model, self._ratio))
        end = self._ask_within_the_window()
        self._calls, self._stop = end.answer.calls, end.stop
        self._conversation.add(end.answer)
        reason = _reason(end.answer, self._requests.redactor)
        return PlannerTurn([_planned(call, reason) for call in self._calls], self.turn)

    def hide(self, value: Any) -> Any:
        """A JSON value without the key of the provider, to be stored and shown."""
        return self._requests.redactor.value(value)

    def _take_results(self, report: Report) -> None:
        refused = [result.refusal is not None for result in report.results]
        self._fruitless = self._fruitless + 1 if refused and all(refused) else 0
        if self._calls:
            answered = zip(self._calls, report.results, strict=True)
            self._conversation.add(
                messages.ToolResults(
                    [
                        messages.CallResult(
                            call.call_id, call.name, messages.result_text(result), result.refusal is not None
                        )
                        for call, result in answered
                    ]
                )
            )
            if self._stop == "length":
                self._conversation.add(messages.UserMessage(CUT_OFF))
        if report.nudge:
            self._conversation.add(messages.UserMessage(report.nudge))

    def _fit(self, limit: int) -> bool:
        """Drop old results that exceed the room; returns whether any were dropped."""
        trimmed = self._conversation.fit(limit)
        if trimmed is not None:
            self._requests.report(EventKind.TRIMMED, {"turn": self.turn, **trimmed._asdict()})
        return trimmed is not None

    # ---- one request -------------------------------------------------------------------------------------

    def _ask_within_the_window(self) -> AnswerEnd:
        try:
            return self._ask()
        except Overflow:
            # The window is smaller than configured, or its tokens are shorter than estimated.
            if not self._fit(self._conversation.characters // 2):
                raise
        return self._ask()

    def _ask(self) -> AnswerEnd:
        request = request_for(self._model, self._thinking, self._conversation.messages)
        end, tokens_in = self._requests.ask(request, self.turn)
        if tokens_in:
            # In the characters counted here, not those of the body, in which escapes are longer.
            sent = self._conversation.characters + len(SYSTEM) + TOOLS_LENGTH
            self._ratio = min(FIRST_GUESS, max(1.0, sent / tokens_in))
        return end


def request_for(model: ResolvedModel, thinking: str, messages: Iterable[messages.Message]) -> Request:
    """The request to a model."""
    return Request(
        model=model.name,
        system=SYSTEM,
        tools=TOOL_SCHEMAS,
        messages=list(messages),
        output_limit=_output_of(model),
        thinking=thinking,
        thinking_style=model.thinking_style,
    )


def prompt_for(model: ResolvedModel, transcript: Transcript, budget: Budget, chosen: int = 0) -> tuple[str, int]:
    """The prompt of a run that has already chosen this many targets, and the number of entries in its manifest.

    It takes at most half of the available room: a small window gets a shorter manifest.
    """
    room, most = room_in(model, FIRST_GUESS) // 2, MANIFEST_ENTRIES
    while True:
        manifest = manifest_of(transcript, most)
        prompt = user_prompt(manifest, transcript.parameters, budget, chosen)
        if not most or len(prompt) <= room:
            return prompt, len(manifest["entries"])
        most //= 2


def room_in(model: ResolvedModel, ratio: float) -> int:
    """The maximum length of a conversation, in characters, so that it and an answer fit into the model's window.

    `ratio`: characters per token.
    """
    tokens = model.window - _output_of(model) - model.window // MARGIN_PART
    return max(0, math.floor(tokens * ratio) - len(SYSTEM) - TOOLS_LENGTH)


def _output_of(model: ResolvedModel) -> int:
    return min(model.output_limit, max(1, model.window // OUTPUT_PART))


# ---- the model's calls -------------------------------------------------------------------------------------


def _planned(call: messages.CallPart, reason: str) -> ToolCall:
    arguments = messages.parsed_arguments(call.arguments)
    reasons = dict.fromkeys(_named(arguments), reason) if call.name == "context_delete" and reason else {}
    return ToolCall(well_formed(call.name), arguments, reasons)


def _reason(answer: messages.AssistantMessage, redactor: SecretRedactor) -> str:
    """The model's text beside its calls, on one line: it has no effect, but a reviewer may read it."""
    text = redactor.text(" ".join(part.text for part in answer.parts if isinstance(part, messages.TextPart)))
    words = " ".join(text.split())
    return well_formed(words if len(words) <= REASON_CHARACTERS else words[: REASON_CHARACTERS - 1] + "…")


def _named(arguments: Any) -> Iterable[Target]:
    """The targets that a deletion names; the airlock refuses anything else."""
    requested = arguments.get("deletions") if isinstance(arguments, Mapping) else None
    for raw in requested if isinstance(requested, list) else ():
        if isinstance(raw, dict) and isinstance(raw.get("entryId"), str):
            block = raw.get("blockIndex")
            if block is None or type(block) is int:
                yield Target(raw["entryId"], block)


@dataclass(frozen=True, slots=True)
class FirstRequest:
    """The first request that a run would send."""

    characters: int
    """Characters of its body: the instructions, the tools, the parameters and the manifest."""
    tokens: int
    """Estimated: four characters per token, as the agents estimate."""
    entries: int
    """Entries of the session whose beginnings the manifest shows."""


def measure_first_request(
    session: Session, leaf_id: str, settings: Mapping[str, object], model: ResolvedModel, thinking: str
) -> FirstRequest:
    """The first request of a run that would start now; `settings` are the effective ones, as `prepare` takes them.

    Raises the errors of preparing a run: BadInput `unknown_entry`, `no_entries`, `not_indexed` and
    `nothing_to_compact`, Conflict `session_rewritten` and `being_indexed`, and the errors of reading the file.
    """
    window = ContextWindowLookup(Path.home()).window_of_session(session)
    prepared = prepare_snapshot(session, leaf_id, settings, window.value if window is not None else None)
    with open_snapshot_texts(session.real_path(), prepared) as texts:
        transcript = prepared.transcript(texts)
        prompt, entries = prompt_for(model, transcript, _budget(transcript, prepared.window))
    characters = size_of(request_for(model, thinking, [messages.UserMessage(prompt)]), model.provider.dialect)
    return FirstRequest(characters, math.ceil(characters / CHARACTERS_PER_TOKEN), entries)


def _budget(transcript: Transcript, window: int | None) -> Budget:
    """The budget before anything is deleted; without a store, which would take as long as everything else."""
    nothing = Stats(
        objects_before=transcript.objects,
        objects_after=transcript.objects,
        objects_deleted=0,
        tokens_before=transcript.tokens,
        tokens_after=transcript.tokens,
        percent_reduction=0.0,
    )
    return Budget(transcript.parameters.compression_ratio, nothing, window)
