"""The active context: what a model receives of a branch, and how full its window is.

A reader (see `agents`) selects the messages; the totals are computed in the same way for all readers. `usage` is the
agent's own number: the context reported with the last valid assistant message plus an estimate of what follows. Pages,
commands and automatic planning have another one, `Tally.size`: one number, in one measure, with its basis.

| basis    | the number                                                                                    |
|----------|-----------------------------------------------------------------------------------------------|
| reported | what the provider reported of exactly this context                                            |
| about    | what was reported or counted, more or less what was added and removed since, in that measure  |
| counted  | what a tokenizer counts in exactly this context, because the provider reported nothing of it  |

Estimates are characters / 4, as the agents make them. A measure is the ratio of what was reported of a context to its
estimate. Between LEAST and MOST it converts the estimates of what is added and removed. If it is larger, most of what
was reported is not in the session (instructions, tools): such estimates are then converted by a count. If it is
smaller, the report is not of the context that this reader rebuilds, and the context is counted.

An assistant message may report that the context was too long for its model. After such a report an agent compacts and
tries again. Providers report in one of three ways:

| way                 | content of the message                                                      |
|---------------------|-----------------------------------------------------------------------------|
| an error message    | `stopReason` "error", and an `errorMessage` that one of OVERFLOWS matches   |
| no room left        | `stopReason` "length", no output, and at least 99% of the window was filled |
| no report           | `stopReason` "stop", and more was sent than fits into the window            |

Limits on requests or tokens per time are not overflows, even if their messages mention too many tokens: they pass with
time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple

import msgspec

from .entries import Block, Entry, EntryKind, Role, Texts, ThinkingLevelControl, tokens_of
from .text import plural

LEAST: Final = 0.4
MOST: Final = 2.5


class Basis(StrEnum):
    """Where a number of tokens comes from."""

    REPORTED = "reported"
    ABOUT = "about"
    COUNTED = "counted"


def significant(tokens: int) -> int:
    """A number that is not exact, to three significant digits, halves up."""
    unit = int(10 ** max(0, len(str(abs(tokens))) - 3))
    return (2 * tokens + unit) // (2 * unit) * unit


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a total into whole parts in proportion to weights (largest remainder method); their sum is exact."""
    whole = sum(weights)
    if not whole:
        return [0] * len(weights)
    found = [total * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda place: -(total * weights[place] % whole))
    for place in by_remainder[: total - sum(found)]:
        found[place] += 1
    return found


def steady_shares(total: int, estimates: Sequence[int], ratio: float) -> list[int]:
    """Divide a total, which is about `ratio` times the sum of the estimates, into whole parts; the largest fractions
    are rounded up.

    When an estimate is added or removed, almost all other parts stay the same; `apportion` may change any of them.
    """
    found = [math.floor(ratio * estimate) for estimate in estimates]
    by_fraction = sorted(
        (place for place, estimate in enumerate(estimates) if estimate),
        key=lambda place: found[place] - ratio * estimates[place],
    )
    if by_fraction:
        each, ups = divmod(total - sum(found), len(by_fraction))
        for rank, place in enumerate(by_fraction):
            found[place] += each + (rank < ups)
    return found


class Measured(msgspec.Struct, frozen=True):
    """The tokens of some content, as reported or counted, and the estimate of the same content."""

    tokens: int
    estimate: int

    @property
    def ratio(self) -> float:
        return self.tokens / self.estimate if self.estimate else math.inf


class ContextSize(msgspec.Struct, frozen=True):
    """The size of a context in tokens. `ratio` converts estimates of its parts to the same measure."""

    tokens: int
    basis: Basis
    ratio: float = 1.0
    estimate: int = 0
    """The agents' estimate of it."""

    def __str__(self) -> str:
        """Such as `about 178,000 tokens` or `177,657 tokens, reported`."""
        if self.is_rounded:
            return f"about {plural(self.shown, 'token')}"
        return f"{plural(self.shown, 'token')}, {self.basis}"

    @property
    def is_rounded(self) -> bool:
        return self.basis is Basis.ABOUT

    @property
    def shown(self) -> int:
        """The displayed number: three significant digits, unless it is exact."""
        return significant(self.tokens) if self.is_rounded else self.tokens

    def of(self, estimate: int) -> int:
        """The tokens of a part with this estimate in this measure, as a whole number."""
        return round(self.ratio * estimate)

    def at(self, estimate: int) -> int:
        """The tokens of this context for another estimate of it."""
        return max(0, self.tokens + self.of(estimate) - self.of(self.estimate))

    def without(self, part: int) -> ContextSize:
        """The size without a part with this estimate; never larger."""
        if not part:
            return self
        left = self.estimate - part
        return ContextSize(self.at(left), Basis.ABOUT, self.ratio, left)

    def shares(self, estimates: Sequence[int]) -> list[int]:
        """The tokens of each part in this measure; their sum is exactly the tokens of the whole."""
        return apportion(self.of(sum(estimates)), estimates)

    def contents(self, weights: Sequence[int]) -> tuple[list[int], int]:
        """The tokens of parts with these weights, and the tokens outside all of them; together they are the size.

        The provider also counts content that is not in the session: instructions and tools.
        """
        inside = min(self.tokens, self.of(self.estimate))
        if abs(self.tokens - inside) <= 1 and any(weights):
            inside = self.tokens
        return apportion(inside, weights), self.tokens - inside


class Measure(msgspec.Struct, frozen=True):
    """The data for measuring the contexts of a branch."""

    report: Measured | None = None
    """The last report of the provider, with the estimate of the context then, even if it was compacted since."""
    sample: Measured | None = None
    """A tokenizer's count of the beginning of the branch; None if nothing was counted."""

    @property
    def is_of_another_context(self) -> bool:
        """Whether the report is too small for the estimated context."""
        return self.report is not None and self.report.ratio < LEAST

    @property
    def needs_sample(self) -> bool:
        """Whether the report does not suffice to convert estimates."""
        return self.report is None or not LEAST <= self.report.ratio <= MOST

    def size_of(self, estimate: int, *, is_compacted: bool = False) -> ContextSize:
        """The size of a context with this estimate; `is_compacted`: part of it was replaced or deleted since the
        report.
        """
        report, sample = self.report, self.sample
        by_count = sample.ratio if sample is not None and sample.estimate else 1.0
        if report is None or self.is_of_another_context:
            is_exact = sample is not None and sample.estimate == estimate and not is_compacted
            basis = Basis.COUNTED if is_exact else Basis.ABOUT
            return ContextSize(round(by_count * estimate), basis, by_count, estimate)
        ratio = report.ratio if report.ratio <= MOST else by_count
        tokens = max(0, report.tokens + round(ratio * estimate) - round(ratio * report.estimate))
        is_current = estimate == report.estimate and not is_compacted
        return ContextSize(tokens, Basis.REPORTED if is_current else Basis.ABOUT, ratio, estimate)


NOTHING_MEASURED: Final = Measure()
UNKNOWN_SIZE: Final = ContextSize(0, Basis.ABOUT)


class InheritedMeasure(msgspec.Struct, frozen=True):
    """The measure of a context from which Redline then deleted a part.

    Reports in the session up to `size`, in bytes, are of larger contexts than the session now has.
    """

    size: int
    measure: Measure


class Sending(msgspec.Struct, frozen=True):
    """The repairs of an agent. Without any, the messages of the context are sent as they are."""

    unsent_stop_reasons: frozenset[str] = frozenset()
    """Assistant messages that stopped for one of these reasons are left out; results of their calls are not."""
    fills_unanswered_calls: bool = False
    """A call without a result gets one, before the next message that is not a result."""
    drops_stray_results: bool = False
    """A result that answers no call of the assistant message directly before it, or a second time, is left out."""
    drops_repeated_calls: bool = False
    """A call with the id of an earlier one is left out; a result answers the earlier one."""
    drops_empty_messages: bool = False
    """Messages of users and assistants without content are left out."""
    pairs_anywhere: bool = False
    """A result may follow its call at any distance, and the first message may have any role."""


NO_REPAIRS: Final = Sending()
"""An agent that sends the messages of the context as they are."""


ANY_WINDOW: Final = 2**53
"""Larger than every window: an error message is an overflow whatever the window is, even if it is unknown."""
READ_CHARACTERS: Final = 4_000
"""The number of characters read of an error message; some contain the whole request, after the reason."""
FILLED_PERCENT: Final = 99

_PASSES: Final = re.compile(
    r"rate.?limit|too many requests|throttl|quota|overloaded|service unavailable|please wait|try again in"
    r"|tokens? per (?:min|hour|day|second)|\btp[md]\b|\bstatus(?: code)?:? 429\b|^(?:error:? )?429\b"
)
"""Errors that are temporary."""

OVERFLOWS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (who, re.compile(words))
    for who, words in (
        ("Anthropic", r"prompt is too long|input length and `?max_tokens`? exceed context limit"),
        ("Anthropic, by bytes", r"request_too_large|request exceeds the maximum (?:allowed )?(?:size|number of bytes)"),
        ("OpenAI", r"exceeds the context window|context[_ ]length[_ ]exceeded|context[_ ]window[_ ]exceeded"),
        ("OpenAI, OpenRouter, DeepSeek, vLLM", r"maximum context length (?:is|of) [\d,]+"),
        ("SGLang", r"exceeds? (?:the )?(?:model'?s )?(?:maximum )?context length"),
        ("vLLM", r"longer than the (?:maximum )?model'?s? (?:length|context length)"),
        ("Google", r"input token count[^.]{0,60}exceeds the maximum"),
        ("xAI", r"maximum prompt length is [\d,]+"),
        ("Groq", r"reduce the length of the messages"),
        ("Bedrock", r"input is too long for requested model|too many input tokens"),
        ("Mistral", r"too large for model with [\d,]+ maximum context length"),
        ("Copilot", r"(?:prompt )?token count of [\d,]+ exceeds the limit|max_prompt_tokens_exceeded"),
        (
            "llama.cpp",
            r"exceeds? the available context size|exceed_context_size|context size (?:has been |was )?exceeded",
        ),
        ("Ollama", r"prompt too long|exceeded (?:the )?(?:max(?:imum)? )?context length"),
        (
            "LM Studio",
            r"greater than the context length|loaded with context length of only [\d,]+|n_keep[^.]{0,20}>= ?n_ctx",
        ),
        ("MLX", r"prompt has [\d,]+ tokens?, but the configured context size is"),
        ("MiniMax", r"context window exceeds limit"),
        ("Kimi", r"exceeded model token limit"),
        ("Z.ai", r"prompt exceeds max(?:imum)? length"),
        ("Qwen", r"range of input length should be|maximum allowed input length of [\d,]+"),
        ("Cohere", r"too many tokens: |number of tokens in the prompt cannot exceed"),
        ("Hugging Face", r"`?inputs`? (?:tokens \+ `?max_new_tokens`? )?must (?:be <=|have less than) [\d,]+"),
        ("Cerebras, Mistral", r"\b4(?:00|13) (?:status code )?\(no body\)"),
    )
)
"""Providers and the patterns of their messages, in lower case and with single blanks."""


def tells_overflow(words: str) -> bool:
    """Whether an error message reports that the context was too long for the model."""
    text = " ".join(words[:READ_CHARACTERS].lower().split())
    return not _PASSES.search(text) and any(pattern.search(text) for _, pattern in OVERFLOWS)


def overflown_window(stop_reason: str, error: str, sent: int, output: int) -> int | None:
    """The largest window, in tokens, that an assistant message reports as too small; None if it reports none.

    `error` is its error message, `sent` the tokens of its input including cached ones, `output` those of its answer.
    """
    if stop_reason == "error":
        return ANY_WINDOW if tells_overflow(error) else None
    if stop_reason == "stop" and sent > 0:
        return sent - 1
    if stop_reason == "length" and not output and sent > 0:
        return 100 * sent // FILLED_PERCENT
    return None


NEVER_FIRST: Final = frozenset({Role.SYSTEM, Role.TOOL_RESULT})
"""The roles of messages with which a kept part never begins: see `ActiveContext.after_first`."""
USAGE_IS_VOID: Final = frozenset({"error", "aborted"})
SAMPLE: Final = 60_000
"""The estimate, in tokens, of the beginning of a branch that is counted."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of the active context. `blocks` are the remaining ones; None if the content is not an array.

    A compaction may contribute two messages: the system message that it repeats, and its summary.
    """

    entry: Entry
    role: str
    blocks: tuple[Block, ...] | None
    tokens: int
    edit: Entry | None = None
    """The edit that replaced the recorded content: `blocks` are blocks of the edit."""
    sent: bool = True
    """False if the message is part of the context but not sent to the provider."""
    as_text: bool = False
    """Whether it is sent as a part of the text of the message before it."""

    @staticmethod
    def of(entry: Entry) -> Message:
        """The message of an entry, as recorded."""
        return Message(entry, entry.role, entry.blocks, entry.tokens, sent=not entry.excluded)

    @property
    def source(self) -> Entry:
        """The entry whose line contains the content."""
        return self.entry if self.edit is None else self.edit

    def text(self, texts: Texts) -> str:
        """The text of the remaining blocks; `texts` are those of `source`."""
        if self.role == Role.SYSTEM and self.entry.kind is EntryKind.SUMMARY:
            return texts.block(0)
        return texts.joined(self.blocks)


class UnreadableEntry(NamedTuple):
    """An entry that keeps the agent from opening the branch, and the consequence."""

    entry: Entry
    reason: str


@dataclass(frozen=True, slots=True)
class ContextUsage:
    """Context tokens as the agent counts them: the provider's report, and an estimate of later entries."""

    tokens: int
    usage_tokens: int
    trailing_tokens: int
    reported_by: Entry | None


@dataclass(frozen=True, slots=True)
class ActiveContext:
    """The rebuilt messages of a branch, in order, with the reader's name."""

    reader: str
    messages: tuple[Message, ...]
    newest_compaction: Entry | None
    """The newest entry on the branch for which this reader omitted something."""
    open_ended: bool = False
    """Whether an appended entry may change how earlier ones are rebuilt."""
    sending: Sending = NO_REPAIRS
    """The agent's changes before it sends the messages."""
    refused: UnreadableEntry | None = None
    """The reason why the agent refuses the branch; the messages are then those without that entry."""
    removed: frozenset[str] = frozenset()
    """The ids of the messages removed by deletions and edits, not of those replaced by a summary."""

    @property
    def estimate(self) -> int:
        """The estimated tokens of all messages."""
        return sum(message.tokens for message in self.messages)

    @property
    def after_first(self) -> int | None:
        """The estimate of the messages after the first one, or after the first one that follows a summary.

        This is what pi can keep while it summarises something. None if there is no such first message.
        """
        tokens = None
        for message in self.messages:
            if message.entry.kind is not EntryKind.SUMMARY:
                tokens = _count_after_first(tokens, message.role, message.tokens)
        return tokens

    @property
    def usage(self) -> ContextUsage:
        trailing = 0
        for message in reversed(self.messages):
            entry = message.entry
            if entry.usage and message.role == Role.ASSISTANT and _reports(entry) and not message.as_text:
                return ContextUsage(entry.usage + trailing, entry.usage, trailing, entry)
            trailing += message.tokens
        return ContextUsage(trailing, 0, trailing, None)


Rebuild = Callable[[Sequence[Entry]], ActiveContext]


class Tally(msgspec.Struct):
    """The totals of a context, updated as plain entries are appended, so that nothing is read again."""

    leaf_id: str | None = None
    """The last counted entry; None before the first."""
    estimate: int = 0
    after_first: int | None = None
    """See `ActiveContext.after_first`."""
    measure: Measure = NOTHING_MEASURED
    is_compacted: bool = False
    """Whether the context was compacted after the last report."""
    at_answer: int = 0
    """The estimate of the context up to the last answer."""
    sampled_at: str = ""
    """The last entry of the branch when the sample was counted."""
    open_ended: bool = False
    """Whether a later entry can change the totals of earlier ones; then everything is counted again."""
    overflown: int | None = None
    """The window that the last assistant message reported as too small, if it came after every compaction."""
    answered_by: tuple[str, str] | None = None
    """Provider and id of the model of that message."""
    model: tuple[str, str] | None = None
    """The model in use."""

    @classmethod
    def of(
        cls,
        context: ActiveContext,
        branch: Sequence[Entry],
        rebuild: Rebuild,
        inherited: InheritedMeasure | None = None,
    ) -> Tally:
        """The totals of a branch, given its context. `rebuild` gives the context of a beginning of the branch."""
        newest = context.newest_compaction
        answers = [place for place, entry in enumerate(branch) if _is_answer(entry)]
        last = branch[answers[-1]] if answers else None
        outdated = last is not None and newest is not None and last.number < newest.number
        at_answer = 0
        if answers:
            is_end = answers[-1] == len(branch) - 1
            at_answer = context.estimate if is_end else rebuild(branch[: answers[-1] + 1]).estimate
        since = inherited.size if inherited is not None else 0
        reporter = last_report(branch, since)
        measure = inherited.measure if inherited is not None else NOTHING_MEASURED
        if reporter is not None:
            then = at_answer if reporter == answers[-1] else rebuild(branch[: reporter + 1]).estimate
            measure = Measure(Measured(branch[reporter].usage or 0, then))
        return cls(
            leaf_id=branch[-1].id if branch else "",
            estimate=context.estimate,
            after_first=context.after_first,
            measure=measure,
            is_compacted=newest is not None and (reporter is None or branch[reporter].number < newest.number),
            sampled_at=branch[-1].id if measure.sample is not None else "",
            at_answer=at_answer,
            open_ended=context.open_ended,
            overflown=last.overflown if last is not None and not outdated else None,
            answered_by=last.model if last is not None else None,
            model=model_of(branch),
        )

    def carries(self, entry: Entry) -> bool:
        """Whether an appended entry only adds to the totals."""
        if entry.kind is EntryKind.OFF_BRANCH:
            # One that names the end of the session may name another one.
            return entry.parent_id in (None, self.leaf_id)
        return entry.parent_id == self.leaf_id and not entry.rebuilds and not self.open_ended

    def add(self, entry: Entry) -> None:
        """Count an entry that `carries` accepted."""
        kind, role = entry.kind, entry.role
        if kind is EntryKind.OFF_BRANCH:
            if entry.usage:
                self._report(entry.usage)
            return
        self.leaf_id = entry.id
        if entry.model is not None:
            self.model = entry.model
        if kind is not EntryKind.MESSAGE:
            return
        if not entry.empty:
            self.estimate += entry.tokens
            self.after_first = _count_after_first(self.after_first, role, entry.tokens)
        if role == Role.ASSISTANT:
            self.overflown, self.answered_by = entry.overflown, entry.model
            self.at_answer = self.estimate
            if _reports(entry):
                self._report(entry.usage or 0)

    def _report(self, tokens: int) -> None:
        report = Measured(tokens, self.at_answer)
        self.measure, self.is_compacted = msgspec.structs.replace(self.measure, report=report), False

    @property
    def size(self) -> ContextSize:
        """The size of the context."""
        return self.measure.size_of(self.estimate, is_compacted=self.is_compacted)

    @property
    def wants_sample(self) -> bool:
        """Whether the beginning of the branch is to be counted, or counted again because it is longer now."""
        if not self.measure.needs_sample:
            return False
        known = self.measure.sample
        return known is None or (known.estimate < SAMPLE and self.sampled_at != self.leaf_id)

    def take_sample(self, sample: Measured) -> None:
        self.measure, self.sampled_at = (msgspec.structs.replace(self.measure, sample=sample), self.leaf_id or "")

    @property
    def overflow(self) -> int | None:
        """The largest window that is known to be too small for this context.

        A report of one model does not count for another: the session may have continued with a larger one.
        """
        return self.overflown if self.answered_by in (None, self.model) else None


def last_report(branch: Sequence[Entry], since: int = 0) -> int | None:
    """The index of the last answer on a branch that reports its context, from this file offset on; None if there is
    none.
    """
    places = range(len(branch) - 1, -1, -1)
    return next(
        (at for at in places if _is_answer(branch[at]) and _reports(branch[at]) and branch[at].offset >= since), None
    )


def _count_after_first(counted: int | None, role: str, tokens: int) -> int | None:
    if counted is None:
        return None if role in NEVER_FIRST else 0
    return counted + tokens


def _is_answer(entry: Entry) -> bool:
    return entry.is_message and entry.role == Role.ASSISTANT


def _reports(entry: Entry) -> bool:
    """Whether an answer reports the size of its context. Agents do not count a report of zero tokens."""
    return bool(entry.usage) and not entry.empty and entry.stop_reason not in USAGE_IS_VOID


def keep(entry: Entry, hidden: frozenset[int] | None = None) -> Message | None:
    """The entry as a message without its hidden blocks; None if nothing of it would remain."""
    if not hidden or not entry.blocks:
        return Message.of(entry)
    blocks = tuple(block for block in entry.blocks if block.index not in hidden)
    if not blocks:
        return None
    tokens = tokens_of(sum(block.units for block in blocks))
    return Message(entry, entry.role, blocks, tokens, sent=not entry.excluded)


def newest_of(branch: Sequence[Entry], kinds: Iterable[EntryKind]) -> Entry | None:
    """The latest entry on the branch (in file order) that is of one of these kinds."""
    last = (next((entry for entry in reversed(branch) if entry.kind is kind), None) for kind in kinds)
    return max(filter(None, last), key=lambda entry: entry.number, default=None)


def model_of(branch: Sequence[Entry]) -> tuple[str, str] | None:
    """Provider and id of the model in use at the end of the branch, from the latest model change or assistant."""
    return next((entry.model for entry in reversed(branch) if entry.model is not None), None)


def thinking_level_of(branch: Sequence[Entry]) -> str:
    """The thinking level in use at the end of the branch; `off` if none was ever set."""
    for entry in reversed(branch):
        if isinstance(entry.control, ThinkingLevelControl) and entry.control.level is not None:
            return entry.control.level
    return "off"


def is_due(tokens: int, window: int | None, reserve_tokens: int) -> bool:
    """Whether the context exceeds what the agent allows. An unknown window is never full."""
    return window is not None and tokens > window - reserve_tokens


def has_overflown(overflow: int | None, window: int | None) -> bool:
    """Whether the context was too long. `overflow` is `Tally.overflow`, in tokens like the window."""
    return overflow is not None and (overflow >= ANY_WINDOW or (window is not None and window <= overflow))


def why_due(
    tokens: int | None, overflow: int | None, window: int | None, reserve_tokens: int
) -> Literal["", "threshold", "overflow"]:
    """Why the agent would compact automatically, in its own terms; empty if it would not."""
    if has_overflown(overflow, window):
        return "overflow"
    past = tokens is not None and is_due(tokens, window, reserve_tokens)
    return "threshold" if past else ""
