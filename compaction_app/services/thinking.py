"""A planner that is a model: it is asked over the network, and acts through the tools alone.

    prompt ─▶ request ─▶ pieces, told as they come ─▶ answer ─▶ its calls run in the loop ─▶ results ─▶ request …

| told       | says                                                                     |
|------------|--------------------------------------------------------------------------|
| `asked`    | a request is on its way: how long it is                                  |
| `retried`  | the provider could not answer, and is asked again after a while          |
| `streamed` | what came within a tenth of a second: text, reasoning, calls, arguments  |
| `answered` | the answer is whole: its calls, tokens and cost                          |
| `trimmed`  | old results were dropped from the conversation, to stay within the window |

What came of an answer that broke off is not run. The conversation lives as long as its run's worker: a run that is
resumed begins another one, with what it has deleted by then.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from sessions_app.sessionlog.jsjson import well_formed

from ..deletion.budget import Budget
from ..deletion.conversation import (
    Answer,
    Asked,
    Conversation,
    Message,
    Result,
    Results,
    Said,
    Told,
    parsed_arguments,
    result_text,
)
from ..deletion.loop import PlannedCall, Report, Turn
from ..deletion.manifest import ENTRIES, manifest_of
from ..deletion.prompt import SYSTEM, user_prompt
from ..deletion.schemas import TOOL_SCHEMAS
from ..deletion.targets import Target
from ..deletion.tools import ToolCall
from ..deletion.transcript import Transcript
from ..providers.addresses import is_loopback
from ..providers.asking import Patience
from ..providers.faults import SHOWN_OF_KEY
from ..providers.streaming import Streaming
from ..providers.wire import (
    Answered,
    ArgumentsPiece,
    CallBegun,
    Endpoint,
    Piece,
    Request,
    Retrying,
    Sent,
    TextPiece,
    ThoughtPiece,
)
from .catalogue import ModelInForce
from .spending import Spent

ROW_SECONDS: Final = 0.1
"""What streams is told at most so often, but for the end of an answer."""
LOOK_SECONDS: Final = 0.05
"""How often a stop is looked for while nothing comes."""
TURNS: Final = 200
"""A model that was asked so often and is not done will not be."""
FRUITLESS_TURNS: Final = 12
"""Nor will one whose calls were all refused so many times in a row."""
OUTPUT_PART: Final = 4
"""An answer may take so much of the window: one of so many parts."""
MARGIN_PART: Final = 20
FIRST_GUESS: Final = 3.0
"""Characters per token, until the provider has reported some; the guess is low, so that the window is not overrun."""
REASON_CHARACTERS: Final = 300
TOOLS_LENGTH: Final = len(
    json.dumps([[tool.name, tool.description, tool.parameters] for tool in TOOL_SCHEMAS])
)
CUT_OFF: Final = "Your last answer reached the output limit and was cut off. Ask for less in one turn."

Tell = Callable[[str, dict[str, Any]], None]
"""Told what happens: the kind of an event, and its data."""


class Stopped(Exception):
    """The run was asked to stop, and the connection to the provider is closed."""


class Exhausted(Exception):
    """The model was asked as often as is allowed. It says so in words."""


class ModelPlanner:
    """Plans by asking a model. `is_stopped` is looked at many times a second, and may raise."""

    def __init__(
        self,
        model: ModelInForce,
        endpoint: Endpoint,
        thinking: str,
        *,
        tell: Tell,
        is_stopped: Callable[[], bool],
        spent: Spent,
        patience: Patience | None = None,
    ) -> None:
        self._model, self._endpoint, self._thinking = model, endpoint, thinking
        self._tell, self._is_stopped = tell, is_stopped
        self._patience = patience or patience_for(endpoint)
        self.spent = spent
        self.turn = 0
        """How often it was asked."""
        self._fruitless = 0
        self._ratio = FIRST_GUESS
        self._conversation = Conversation("")
        self._calls: list[Asked] = []
        self._stop = ""

    @property
    def name(self) -> str:
        return self._model.planner

    def begin(self, transcript: Transcript, budget: Budget, chosen: int) -> None:
        """Make the prompt for a run that has chosen so many targets already."""
        prompt, _ = prompt_for(self._model, transcript, budget, chosen)
        self._conversation = Conversation(prompt)

    def next_turn(self, report: Report) -> Turn:
        """Ask for the next calls. Raises ProviderError, Stopped and Exhausted."""
        self._hear(report)
        if self.turn >= TURNS:
            raise Exhausted(f"The model was asked {TURNS} times and is not done: the run ends here.")
        if self._fruitless >= FRUITLESS_TURNS:
            raise Exhausted(
                f"Every call of the model's last {FRUITLESS_TURNS} answers was refused: the run ends here."
            )
        self.turn += 1
        trimmed = self._conversation.fit(self._limit)
        if trimmed is not None:
            self._tell(
                "trimmed",
                {"turn": self.turn, "results": trimmed.results, "characters": trimmed.characters},
            )
        answered = self._ask()
        self._calls, self._stop = answered.answer.calls, answered.stop
        self._conversation.add(answered.answer)
        key = self._endpoint.key
        reason = _without(_reason(answered.answer), key)
        return Turn([_planned(asked, reason, key) for asked in self._calls])

    @property
    def _limit(self) -> int:
        return room_in(self._model, self._ratio)

    def _hear(self, report: Report) -> None:
        refused = [result.refusal is not None for result in report.results]
        self._fruitless = self._fruitless + 1 if refused and all(refused) else 0
        if self._calls:
            told = zip(self._calls, report.results, strict=True)
            self._conversation.add(
                Results(
                    [
                        Result(asked.call_id, asked.name, result_text(result), result.refusal is not None)
                        for asked, result in told
                    ]
                )
            )
            if self._stop == "length":
                self._conversation.add(Told(CUT_OFF))
        if report.nudge:
            self._conversation.add(Told(report.nudge))

    # ---- one request -------------------------------------------------------------------------------------

    def _ask(self) -> Answered:
        request = request_for(self._model, self._thinking, self._conversation.messages)
        began, sent, pieces = time.monotonic(), 0, _Pieces()
        with Streaming(self._endpoint, request, self._patience) as stream:
            while True:
                piece = stream.next(min(LOOK_SECONDS, pieces.wait))
                if self._is_stopped():
                    self._flush(pieces)
                    raise Stopped
                if isinstance(piece, Sent):
                    sent = piece.characters
                    self.spent.send(sent)
                    self._tell("asked", {"turn": self.turn, "characters": sent})
                elif isinstance(piece, Retrying):
                    self._tell("retried", self._retried(piece))
                elif isinstance(piece, Answered):
                    self._flush(pieces)
                    self._answered(piece, sent, began)
                    return piece
                elif piece is not None:
                    pieces.add(piece)
                if pieces.is_due:
                    self._flush(pieces)

    def _retried(self, piece: Retrying) -> dict[str, Any]:
        return {
            "turn": self.turn,
            "attempt": piece.attempt,
            "seconds": round(piece.seconds, 1),
            "why": well_formed(piece.why),
        }

    def _flush(self, pieces: _Pieces) -> None:
        taken = pieces.take()
        if taken:
            # A provider could say the key back: no row holds it.
            shown = [[*head, _without(text, self._endpoint.key)] for *head, text in taken]
            self._tell("streamed", {"turn": self.turn, "pieces": shown})

    def _answered(self, piece: Answered, sent: int, began: float) -> None:
        added = self.spent.receive(piece.usage, sent, piece.characters, self._model.prices)
        tokens = added["input"] + added["cacheRead"] + added["cacheWrite"]
        if piece.usage is not None and tokens:
            self._ratio = min(FIRST_GUESS, max(1.0, sent / tokens))
        self._tell(
            "answered",
            {
                "turn": self.turn,
                "calls": len(piece.answer.calls),
                "stop": well_formed(piece.stop),
                "characters": piece.characters,
                "ms": round((time.monotonic() - began) * 1000),
                **added,
            },
        )


def request_for(model: ModelInForce, thinking: str, messages: Iterable[Message]) -> Request:
    """What a model is asked."""
    return Request(
        model=model.name,
        system=SYSTEM,
        tools=TOOL_SCHEMAS,
        messages=list(messages),
        output_limit=_output_of(model),
        thinking=thinking,
        thinking_style=model.thinking_style,
    )


def prompt_for(
    model: ModelInForce, transcript: Transcript, budget: Budget, chosen: int = 0
) -> tuple[str, int]:
    """The prompt of a run that has chosen so many targets already, and how many entries its manifest shows.

    It takes at most half of what room there is: a small window gets a shorter manifest.
    """
    room, most = room_in(model, FIRST_GUESS) // 2, ENTRIES
    while True:
        manifest = manifest_of(transcript, most)
        prompt = user_prompt(manifest, transcript.parameters, budget, chosen)
        if not most or len(prompt) <= room:
            return prompt, len(manifest.entries)
        most //= 2


def room_in(model: ModelInForce, ratio: float) -> int:
    """Characters that a conversation may have, so that it and an answer are within the model's window.

    `ratio`: characters per token.
    """
    tokens = model.window - _output_of(model) - model.window // MARGIN_PART
    return max(0, math.floor(tokens * ratio) - len(SYSTEM) - TOOLS_LENGTH)


def _output_of(model: ModelInForce) -> int:
    return min(model.output_limit, max(1, model.window // OUTPUT_PART))


def patience_for(endpoint: Endpoint) -> Patience:
    """How long a provider is waited for. A model on this machine may read its prompt for minutes."""
    return Patience(first_byte=900, between=300) if is_loopback(endpoint.base_url) else Patience()


class _Pieces:
    """What has come and was not told yet; neighbours of one kind are one."""

    def __init__(self) -> None:
        self._taken: list[list[Any]] = []
        self._texts: list[list[str]] = []
        self._since: float | None = None

    def add(self, piece: Piece) -> None:
        head, text = _told(piece)
        if self._since is None:
            self._since = time.monotonic()
        if self._taken and self._taken[-1] == head and head[0] != "call":
            self._texts[-1].append(text)
        else:
            self._taken.append(head)
            self._texts.append([text])

    @property
    def wait(self) -> float:
        """Seconds until what has come is due to be told."""
        return math.inf if self._since is None else max(0.0, self._since + ROW_SECONDS - time.monotonic())

    @property
    def is_due(self) -> bool:
        return self._since is not None and self.wait <= 0

    def take(self) -> list[list[Any]]:
        taken = [
            [*head, well_formed("".join(texts))] for head, texts in zip(self._taken, self._texts, strict=True)
        ]
        self._taken, self._texts, self._since = [], [], None
        return taken


def _told(piece: Piece) -> tuple[list[Any], str]:
    if isinstance(piece, TextPiece):
        return ["text"], piece.text
    if isinstance(piece, ThoughtPiece):
        return ["thought"], piece.text
    if isinstance(piece, CallBegun):
        return ["call", piece.index], piece.name
    assert isinstance(piece, ArgumentsPiece)  # noqa: S101  # the others are no part of an answer
    return ["arguments", piece.index], piece.text


def _without(text: str, key: str) -> str:
    """The text without the key; only as a whole, because what a model asks for must not change otherwise."""
    return text.replace(key, f"…{key[-SHOWN_OF_KEY:]}") if len(key) > SHOWN_OF_KEY else text


# ---- what the model asks for -------------------------------------------------------------------------------


def _planned(asked: Asked, reason: str, key: str) -> PlannedCall:
    arguments = parsed_arguments(_without(asked.arguments, key))
    reasons = dict.fromkeys(_named(arguments), reason) if asked.name == "context_delete" and reason else {}
    return PlannedCall(ToolCall(well_formed(_without(asked.name, key)), arguments), reasons)


def _reason(answer: Answer) -> str:
    """What the model said beside its calls, on one line: nothing acts on it, and a reviewer may read it."""
    words = " ".join(" ".join(part.text for part in answer.parts if isinstance(part, Said)).split())
    return well_formed(words if len(words) <= REASON_CHARACTERS else words[: REASON_CHARACTERS - 1] + "…")


def _named(arguments: Any) -> Iterable[Target]:
    """The targets that a deletion names; what is no target is for the airlock to refuse."""
    requested = arguments.get("deletions") if isinstance(arguments, Mapping) else None
    for raw in requested if isinstance(requested, list) else ():
        if isinstance(raw, dict) and isinstance(raw.get("entryId"), str):
            block = raw.get("blockIndex")
            if block is None or type(block) is int:
                yield Target(raw["entryId"], block)
