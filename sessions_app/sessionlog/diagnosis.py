"""What is wrong with a session, what each agent makes of it, and the rules that providers enforce on a conversation.

An agent finds damage in its own files: see `agents`. A provider answers a request that violates one of its rules with
an error, whatever the next prompt is: the session cannot be continued. A violation that the agent repairs before it
sends (see `Sending`) is found as well, and says so.

    call c1          answered directly: no violation
    result c1
    call c2          UNANSWERED_CALL: the next message is not a result. pi repairs it with a result of its own
    user
    result c2        STRAY_RESULT: too late, and after pi's repair it is also the second one

Assistant messages of one `reply` are one message, also if results come between them; what the client adds after them is
sent behind the results.

Providers accept consecutive messages of users or assistants, and assistant messages that are nothing but thinking: real
sessions continue after them. Digests do not contain texts, so a text counts as empty only if it has no characters, and
thinking counts as unchanged if the types and lengths of its blocks are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from .context import ActiveContext, Message, Sending
from .entries import Block, BlockType, Entry, Role
from .session import Damage
from .tree import SessionTree

FINDINGS_KEPT: Final = 10_000
"""The number of findings that are kept in full; the others are only counted."""


class Severity(StrEnum):
    """How bad a finding is for one agent."""

    FATAL = "fatal"
    """The session cannot be opened, or not be continued."""
    LOSS = "loss"
    """The session can be continued, but something of it is lost."""
    NONE = "none"


class AgentConsequence(NamedTuple):
    """The consequence of a finding in one agent."""

    agent: str
    """The agent and its versions, for people."""
    severity: Severity
    text: str
    """The rest of a sentence that begins with the agent: "refuses to open the session"."""


class SharedConsequence(NamedTuple):
    """A consequence, and all agents that have it."""

    agents: str
    severity: Severity
    text: str


class Finding(NamedTuple):
    """One fault of a session: a damaged line, a wrong place in the tree, or a violation of a provider's rule."""

    kind: str
    """A `DamageKind`, or a `ProviderRule`."""
    number: int
    """The line number, from 1."""
    offset: int
    """The offset of the line in bytes."""
    length: int
    detail: str
    consequences: tuple[AgentConsequence, ...]
    is_repairable: bool = True
    """Whether a repaired copy is free of it."""

    def obstacle(self, agent: str) -> str:
        """Why an agent of these versions cannot open the session, or not continue it; empty if it can."""
        fatal = (one.text for one in self.consequences if one.agent == agent and one.severity is Severity.FATAL)
        consequence = next(fatal, "")
        return f"{agent} {consequence} (line {self.number:,}: {self.detail})." if consequence else ""

    @property
    def severity(self) -> Severity:
        """The worst severity for any agent."""
        found = {consequence.severity for consequence in self.consequences}
        return next((one for one in Severity if one in found), Severity.NONE)

    @property
    def shared_consequences(self) -> tuple[SharedConsequence, ...]:
        """Each consequence once, with its agents."""
        agents: dict[tuple[Severity, str], list[str]] = {}
        for one in self.consequences:
            agents.setdefault((one.severity, one.text), []).append(one.agent)
        return tuple(
            SharedConsequence(
                "every version" if 1 < len(self.consequences) == len(names) else ", ".join(names), severity, text
            )
            for (severity, text), names in agents.items()
        )


class Examination(NamedTuple):
    """The faults that an agent finds in one of its files, and the tree of its entries."""

    findings: list[Finding]
    """The first FINDINGS_KEPT findings about lines, and as many about the tree."""
    more: int
    """The number of findings that are not kept."""
    tree: SessionTree

    def obstacle(self, agent: str) -> str:
        """The first reason why an agent of these versions cannot open the session, or not continue it."""
        return next(filter(None, (finding.obstacle(agent) for finding in self.findings)), "")


class Diagnosis(NamedTuple):
    """All findings, in the order of their lines."""

    findings: tuple[Finding, ...]
    more: int
    """The number of findings that are not kept."""

    @property
    def total(self) -> int:
        return len(self.findings) + self.more

    @property
    def is_repairable(self) -> bool:
        """Whether a repaired copy is free of some finding."""
        return any(finding.is_repairable for finding in self.findings)


def diagnosis_of(findings: Iterable[Finding], more: int) -> Diagnosis:
    """The diagnosis with these findings, in any order."""
    ordered = sorted(findings, key=lambda finding: (finding.offset, finding.number, finding.kind))
    return Diagnosis(tuple(ordered), more)


def damage_finding(
    damage: Damage, consequences: tuple[AgentConsequence, ...], *, is_repairable: bool = True
) -> Finding:
    """The finding for damage of a line or of the tree."""
    return Finding(
        damage.kind.value, damage.number, damage.offset, damage.length, damage.detail, consequences, is_repairable
    )


KEPT_CALLS: Final = 200
"""The maximum number of calls remembered in a stored conversation."""
SENTENCE_CHARACTERS: Final = 500
"""The maximum stored length of a sentence, in characters: ids can be of any length."""


class ProviderRule(StrEnum):
    """A rule, named after its violation."""

    UNANSWERED_CALL = "unanswered_call"
    """Each call is answered directly after its assistant message."""
    REPEATED_CALL_ID = "repeated_call_id"
    """The id of each call is unique."""
    STRAY_RESULT = "stray_result"
    """Each result has a call in the assistant message before it, with nothing but other results between them."""
    REPEATED_RESULT = "repeated_result"
    """Each call is answered once."""
    CHANGED_THINKING = "changed_thinking"
    """The thinking of the latest assistant message is unchanged: every block is there, in order, and first if it was
    first."""
    EMPTY_CONTENT = "empty_content"
    """Messages of users and assistants, and results of failed calls, are not empty."""
    ASSISTANT_FIRST = "assistant_first"
    """The first message is not an assistant's."""


_ERRORS: Final = {
    ProviderRule.UNANSWERED_CALL: "a tool call has no result directly after it",
    ProviderRule.REPEATED_CALL_ID: "two tool calls have the same id",
    ProviderRule.STRAY_RESULT: "a tool result has no tool call in the message before it",
    ProviderRule.REPEATED_RESULT: "a tool call has more than one result",
    ProviderRule.CHANGED_THINKING: "the thinking of the latest assistant message was modified",
    ProviderRule.EMPTY_CONTENT: "a message has no content",
    ProviderRule.ASSISTANT_FIRST: "the first message is not a user's",
}
"""The provider's error, in plain words."""


class Violation(NamedTuple):
    """One violation, by an entry."""

    rule: ProviderRule
    entry_id: str
    call_id: str
    """The call or result that violates the rule; empty if it is another part of the entry."""
    fault: str
    """The fault of the entry, as a clause."""
    is_repaired: bool = False
    """Whether the agent repairs it before it sends the conversation, so that no provider sees it."""

    @property
    def identity(self) -> tuple[ProviderRule, str, str, bool]:
        """Identifies the violation in different contexts of a session; for ASSISTANT_FIRST, regardless of the entry."""
        entry_id = "" if self.rule is ProviderRule.ASSISTANT_FIRST else self.entry_id
        return self.rule, entry_id, self.call_id, self.is_repaired

    @property
    def error(self) -> str:
        """The provider's error that it causes."""
        return _ERRORS[self.rule]

    @property
    def sentence(self) -> str:
        if self.is_repaired:
            return f"{self.fault}. The agent repairs this before it sends the conversation."
        return f"{self.fault}. Providers refuse the conversation: {self.error}."


class Breakage(msgspec.Struct, frozen=True):
    """The first reason for which a conversation cannot be continued."""

    entry_id: str
    sentence: str

    @classmethod
    def by(cls, violation: Violation) -> Breakage:
        return cls(violation.entry_id, violation.sentence[:SENTENCE_CHARACTERS])


def violations(context: ActiveContext) -> tuple[Violation, ...]:
    """All violations in the messages that the agent would send of a context, in order."""
    conversation = SentConversation(context.sending)
    return (*conversation.read(context.messages), *conversation.violations_at_end())


def new_violations(before: Sequence[Violation], after: Sequence[Violation]) -> tuple[Violation, ...]:
    """The violations that are only in `after`. One that was repaired before counts as new if it no longer is."""
    known = {one.identity for one in before}
    return tuple(one for one in after if one.identity not in known)


class SentConversation(msgspec.Struct):
    """The messages of a context on their way to a provider. It can be stored, and continued with further messages."""

    sending: Sending
    calls: dict[str, str] = {}
    """For each call so far, the id of its entry, by call id."""
    unsent_calls: dict[str, str] = {}
    """As `calls`, for assistant messages that are not sent."""
    open_calls: dict[str, str] = {}
    """As `calls`, for the assistant message before the current results, or for all of them if pairs may be anywhere."""
    answered: set[str] = set()
    """The open calls that have a result."""
    has_begun: bool = False
    reply: str = ""
    """The id of a reply that may continue: see `Entry.reply`."""
    changed_thinking: str | None = None
    """The latest assistant message that is sent, if its thinking was changed."""
    breakage: Breakage | None = None
    """The first violation so far that the agent does not repair, or the reason why it refuses the branch."""

    @classmethod
    def of(cls, context: ActiveContext) -> SentConversation:
        """The conversation after all messages of a context."""
        conversation = cls(context.sending)
        if context.refused is not None:
            conversation.breakage = Breakage(context.refused.entry.id, context.refused.reason)
        conversation.add(context.messages)
        return conversation

    def add(self, messages: Iterable[Message]) -> None:
        """Continue with these messages, and record the first breakage."""
        for violation in self.read(messages):
            if self.breakage is None and not violation.is_repaired:
                self.breakage = Breakage.by(violation)

    @property
    def broken(self) -> Breakage | None:
        """Why it cannot be continued with a prompt; None if it can."""
        at_end = (Breakage.by(one) for one in self.violations_at_end() if not one.is_repaired)
        return self.breakage or next(at_end, None)

    def forget_old_calls(self) -> None:
        """Remember only the last KEPT_CALLS calls. A call that repeats the id of an older one is then not noticed."""
        self.calls = dict(list(self.calls.items())[-KEPT_CALLS:])
        self.unsent_calls = dict(list(self.unsent_calls.items())[-KEPT_CALLS:])
        if self.sending.pairs_anywhere:
            self.open_calls = {one: owner for one, owner in self.open_calls.items() if one not in self.answered}
            self.answered = set()

    def read(self, messages: Iterable[Message]) -> Iterator[Violation]:
        """Continue with these messages; yields their violations, except those that depend on later messages."""
        for message in messages:
            if not message.sent or message.as_text or message.role == Role.SYSTEM:
                continue
            if message.role == Role.TOOL_RESULT:
                yield from self._read_result(message)
                continue
            if self.reply and message.role == Role.CUSTOM:
                continue
            is_reply = message.role == Role.ASSISTANT
            continues = is_reply and bool(self.reply) and message.entry.reply == self.reply
            self.reply = message.entry.reply
            if not continues and not self.sending.pairs_anywhere:
                yield from self._unanswered()
                self.open_calls.clear()
                self.answered.clear()
            if is_reply:
                yield from self._read_assistant(message, continues=continues)
                continue
            is_empty = message.role in (Role.USER, Role.CUSTOM) and _is_empty(message)
            if is_empty:
                yield self._empty(message)
            self.has_begun = self.has_begun or not (is_empty and self.sending.drops_empty_messages)

    def violations_at_end(self) -> Iterator[Violation]:
        """The violations if the next message is a prompt."""
        yield from self._unanswered()
        if self.changed_thinking is not None:
            entry_id = self.changed_thinking
            fault = f"Entry {entry_id} is the latest assistant message, and its thinking is not as recorded"
            yield Violation(ProviderRule.CHANGED_THINKING, entry_id, "", fault)

    def _read_assistant(self, message: Message, *, continues: bool) -> Iterator[Violation]:
        entry = message.entry
        if entry.stop_reason in self.sending.unsent_stop_reasons:
            self.unsent_calls.update(dict.fromkeys(_calls_of(message), entry.id))
            return
        if _is_empty(message):
            yield self._empty(message)
            if self.sending.drops_empty_messages:
                return
        if not self.has_begun and not self.sending.pairs_anywhere:
            self.has_begun = True
            fault = f"Entry {entry.id} is an assistant message, and no message of a user comes before it"
            yield Violation(ProviderRule.ASSISTANT_FIRST, entry.id, "", fault)
        for call_id in _calls_of(message):
            if call_id in self.calls:
                fault = f"Entry {entry.id} has a call {call_id}, and so has entry {self.calls[call_id]}"
                is_repaired = self.sending.drops_repeated_calls
                yield Violation(ProviderRule.REPEATED_CALL_ID, entry.id, call_id, fault, is_repaired)
                if is_repaired:
                    continue
            self.calls[call_id] = self.open_calls[call_id] = entry.id
        if _has_changed_thinking(message):
            self.changed_thinking = entry.id
        elif not continues:
            self.changed_thinking = None

    def _read_result(self, message: Message) -> Iterator[Violation]:
        entry, call_id = message.entry, message.entry.result_for or ""
        if call_id in self.open_calls and call_id not in self.answered:
            self.answered.add(call_id)
        else:
            stray = self._stray(entry, call_id)
            yield stray
            if stray.is_repaired:
                return
        # A stray result begins no conversation: without it, the next message would be the first.
        if entry.failed and _is_empty(message):
            fault = f"Entry {entry.id} is the result of a failed call, and is empty"
            yield Violation(ProviderRule.EMPTY_CONTENT, entry.id, call_id, fault)

    def _stray(self, entry: Entry, call_id: str) -> Violation:
        """The violation by a result that answers no open call."""
        words = f"Entry {entry.id} is a result of call {call_id}"
        is_repaired = self.sending.drops_stray_results
        if call_id in self.answered:
            fault = f"{words}, which has one already"
            return Violation(ProviderRule.REPEATED_RESULT, entry.id, call_id, fault, is_repaired)
        if call_id in self.calls:
            fault = f"{words}, but does not follow entry {self.calls[call_id]} with this call directly"
        elif call_id in self.unsent_calls:
            is_repaired = False
            fault = f"{words}, but entry {self.unsent_calls[call_id]} with this call failed and is not sent"
        else:
            fault = f"{words}, which no entry before it has"
        return Violation(ProviderRule.STRAY_RESULT, entry.id, call_id, fault, is_repaired)

    def _unanswered(self) -> Iterator[Violation]:
        for call_id, entry_id in self.open_calls.items():
            if call_id not in self.answered:
                fault = f"Entry {entry_id} has a call {call_id}, and no result of it follows directly"
                is_repaired = self.sending.fills_unanswered_calls
                yield Violation(ProviderRule.UNANSWERED_CALL, entry_id, call_id, fault, is_repaired)

    def _empty(self, message: Message) -> Violation:
        entry_id, is_repaired = message.entry.id, self.sending.drops_empty_messages
        return Violation(ProviderRule.EMPTY_CONTENT, entry_id, "", f"Entry {entry_id} is empty", is_repaired)


def _calls_of(message: Message) -> Iterator[str]:
    """The ids of the calls in the remaining blocks, with repeats."""
    for block in message.blocks or ():
        if block.call_id is not None:
            yield block.call_id


def _is_empty(message: Message) -> bool:
    if message.blocks is None:
        return message.tokens == 0
    return all(block.type == BlockType.TEXT and block.units == 0 for block in message.blocks)


def _has_changed_thinking(message: Message) -> bool:
    recorded, remaining = message.entry.blocks or (), message.blocks or ()
    if _thinking_in(recorded) != _thinking_in(remaining):
        return True
    return bool(recorded) and recorded[0].is_thinking and not remaining[0].is_thinking


def _thinking_in(blocks: Sequence[Block]) -> list[tuple[str, int, int]]:
    """Type and lengths of each thinking block."""
    return [(block.type, block.units, block.tokens) for block in blocks if block.is_thinking]
