"""The messages of a request, as Claude Code makes them of a context.

| rule | what the client does                                                                      | here            |
|------|-------------------------------------------------------------------------------------------|-----------------|
| 7    | a turn of the user is one message (see `user_turn`); lines of a reply are one message     | `_turns`        |
| 8    | a call that nothing answers is left out with its line; one that is not answered directly  | `_called_lines` |
|      | gets a result that says so; a result without its call, and a second call or result of     | `_pair`         |
|      | one id, are left out                                                                      |                 |
| 9    | what has no content is filled or left out; so is a reply that is only thinking            | `_said_lines`   |
| 10   | thinking is sent as it was recorded                                                       |                 |
| 11   | after a last word of the user's the client adds a reply; the next prompt follows that     | `_closed`       |

`VersionBehaviour` has what differs between versions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Entry

from .sent_lines import (
    Author,
    ContentBlock,
    SentLine,
    error_result,
    for_model,
    is_blank_text,
    is_call,
    is_text,
    last_model,
    sent_lines,
    text_block,
)
from .user_turn import NEXT_PROMPT, NO_CONTENT, user_messages

NO_RESPONSE: Final = "No response requested."
CONTINUE: Final = "Continue from where you left off."
SECOND_CALL: Final = "[Tool use interrupted]"
MISSING_RESULT: Final = "[Tool result missing due to internal error]"
INTERRUPTED: Final = "[Tool call interrupted]"
"""Stands for the client's sentence about a call that was open when the session ended."""
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})


class VersionBehaviour(NamedTuple):
    """What a group of versions does in its own way."""

    answers_open_calls: bool
    """Calls at the end of the session get a result; else they are left out, and the user asks to continue."""
    drops_blank_texts: bool
    """Texts of white space are left out beside others."""
    calls_last: bool
    """In a reply with a text, calls come after everything else, unless one stands between thoughts on its own line."""
    moves_early_results: bool
    """A result before its call is moved behind it."""
    reads_rendered: bool
    """Attachments are sent as they were rendered when they were written; each but the last text of one is a message."""
    drops_other_thinking: bool
    """Thinking of other models than the last one is left out."""
    leaves_commands_open: bool
    """After commands that the user ran in the client no reply is added."""
    parts_prompts_at_errors: bool
    """The next prompt is not joined with one that an error answered."""
    rewords_notices: bool
    """A notice of a task in the background is one text, in words of the client's own."""


CURRENT: Final = VersionBehaviour(*[True] * 9)
OLDER: Final = VersionBehaviour(*[False] * 9)
_OF_USER: Final = frozenset({Author.USER, Author.COMMAND})


@dataclass(slots=True)
class _UserTurn:
    """What comes between two replies."""

    lines: list[SentLine] = field(default_factory=list)
    authors: set[Author] = field(default_factory=set)

    def add(self, line: SentLine) -> None:
        self.lines.append(line)
        self.authors.add(line.author)

    @property
    def is_prompt(self) -> bool:
        """Whether the user said something, and no tool did."""
        return Author.RESULT not in self.authors and not self.authors.isdisjoint(_OF_USER)


@dataclass(slots=True)
class _Reply:
    blocks: list[ContentBlock] = field(default_factory=list)
    keeps_order: bool = False

    def add(self, line: SentLine) -> None:
        self.blocks += line.blocks
        self.keeps_order = self.keeps_order or _thinks_around_call(line.blocks)

    def call_ids(self) -> list[str]:
        return [str(block.get("id")) for block in self.blocks if is_call(block)]


_Turn = _UserTurn | _Reply


def sent_messages(
    context: ActiveContext,
    line: Callable[[Entry], bytes],
    behaviour: VersionBehaviour = CURRENT,
    *,
    closed: bool = True,
) -> Iterator[Mapping[str, Any]]:
    """The messages of a context with role and content; a content that is one text is one block.

    What the client adds on each start is not among them, nor its own words around what was recorded: see
    `reworded_entries`. `closed`: the session is resumed with another prompt; if not, the request is the one after its
    last line.
    """
    lines = list(_lines_of(context, line, behaviour))
    if behaviour.moves_early_results:
        lines = _with_results_after_calls(lines)
    if behaviour.drops_other_thinking:
        lines = list(_with_own_thinking(lines))
    lines = list(_said_lines(_called_lines(for_model(last_model(lines), lines), behaviour)))
    if closed:
        lines = list(_closed(lines, behaviour))
    is_parted = behaviour.parts_prompts_at_errors and bool(lines) and not lines[-1].sent
    lines = [line for line in lines if line.sent]
    if closed and not is_parted and lines and lines[-1].author in (Author.USER, Author.COMMAND):
        lines.append(NEXT_PROMPT)
    turns = _turns(lines)
    _pair(turns)
    for turn in turns:
        if isinstance(turn, _Reply):
            yield {"role": "assistant", "content": _reply_content(turn.blocks, behaviour, keeps_order=turn.keeps_order)}
        else:
            yield from user_messages(turn.lines, drops_blank_texts=behaviour.drops_blank_texts)


def reworded_entries(
    context: ActiveContext, line: Callable[[Entry], bytes], behaviour: VersionBehaviour = CURRENT
) -> Iterator[str]:
    """The ids of the entries around which the client puts words of its own: notices of tasks in the background, such as
    a subagent's, and attachments that were not recorded as rendered."""
    lines = _lines_of(context, line, behaviour)
    yield from (message.entry.id for message, sent in zip(context.messages, lines, strict=True) if sent.is_reworded)


def _lines_of(
    context: ActiveContext, line: Callable[[Entry], bytes], behaviour: VersionBehaviour
) -> Iterator[SentLine]:
    return sent_lines(
        context.messages, line, reads_rendered=behaviour.reads_rendered, rewords_notices=behaviour.rewords_notices
    )


# ---- rules 8, 9 and 11 on lines ----------------------------------------------------------------------------


def _with_results_after_calls(lines: list[SentLine]) -> list[SentLine]:
    """The lines with each result behind the first call that it answers, if it came before that."""
    callers = {call_id: at for at in range(len(lines) - 1, -1, -1) for call_id in lines[at].call_ids()}
    early: dict[int, list[SentLine]] = {}
    for at, line in enumerate(lines):
        caller = callers.get(_answered(line), -1)
        if caller > at:
            early.setdefault(caller, []).append(line)
    if not early:
        return lines
    moved = {id(line) for group in early.values() for line in group}
    ordered: list[SentLine] = []
    for at, line in enumerate(lines):
        ordered += [] if id(line) in moved else [line]
        ordered += early.get(at, [])
    return ordered


def _with_own_thinking(lines: Sequence[SentLine]) -> Iterator[SentLine]:
    """The lines without thinking of other models than that of the last reply (rule 10)."""
    model = last_model(lines)
    for line in lines:
        if line.model in ("", model):
            yield line
        elif blocks := [block for block in line.blocks if block.get("type") not in _THINKING]:
            yield line._replace(blocks=blocks)


def _answered(line: SentLine) -> str:
    return str(line.blocks[0].get("tool_use_id")) if line.author is Author.RESULT else ""


def _called_lines(lines: Sequence[SentLine], behaviour: VersionBehaviour) -> Iterator[SentLine]:
    """The lines without calls that nothing answers, and without second calls of one id."""
    answered = {_answered(line) for line in lines}
    end = _open_reply(lines) if behaviour.answers_open_calls else len(lines)
    kept = min(end, _open_turn(lines)) if behaviour.answers_open_calls else end
    seen: set[str] = set()
    opened: list[str] = []
    for at, line in enumerate(lines):
        calls = list(line.call_ids())
        if not calls:
            yield line
            continue
        blocks = list(_without_repeats(line.blocks, seen))
        if at >= end:
            opened += [call_id for call_id in calls if call_id not in answered]
        elif at < kept and answered.isdisjoint(calls):
            continue
        yield line._replace(blocks=blocks or [_SECOND])
    for call_id in opened:
        yield SentLine(Author.RESULT, [error_result(call_id, INTERRUPTED)])


def _without_repeats(blocks: Iterable[ContentBlock], seen: set[str]) -> Iterator[ContentBlock]:
    """The blocks without calls whose ids were seen; the ids of the others are added."""
    for block in blocks:
        call_id = str(block.get("id")) if is_call(block) else None
        if call_id not in seen:
            yield block
        if call_id is not None:
            seen.add(call_id)


def _open_reply(lines: Sequence[SentLine]) -> int:
    """The index of the first line of the reply with whose calls the session ends; their number if it ends otherwise."""
    end, reply = len(lines), None
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at]
        if line.author is Author.ASSISTANT and reply in (None, line.reply):
            end, reply = at, line.reply
        elif line.is_speech and line.author is not Author.RESULT:
            break
    return end


def _open_turn(lines: Sequence[SentLine]) -> int:
    """The index of the first line behind the last prompt, if the session ends with a result or with calls directly
    after one; their number if it ends otherwise."""
    said = [at for at, line in enumerate(lines) if line.is_speech]
    while said and any(lines[said[-1]].call_ids()):
        said.pop()
    if not said or lines[said[-1]].author is not Author.RESULT:
        return len(lines)
    return next((at + 1 for at in reversed(said) if lines[at].author is Author.USER), 0)


def _said_lines(lines: Iterable[SentLine]) -> Iterator[SentLine]:
    """The lines without blank ones of the model, replies of only thinking, and empty ones of the user."""
    kept = [line for line in lines if not _is_blank(line)]
    spoken = {line.reply for line in kept if line.author is Author.ASSISTANT and not _only_thinks(line)}
    for line in kept:
        is_thought = line.author is Author.ASSISTANT and _only_thinks(line)
        if not is_thought or (line.reply and line.reply in spoken):
            yield line


def _is_blank(line: SentLine) -> bool:
    if not line.blocks:
        return line.author is not Author.ASSISTANT
    return line.author is Author.ASSISTANT and all(map(is_blank_text, line.blocks))


def _only_thinks(line: SentLine) -> bool:
    return bool(line.blocks) and all(block.get("type") in _THINKING for block in line.blocks)


def _closed(lines: Sequence[SentLine], behaviour: VersionBehaviour) -> Iterator[SentLine]:
    """The lines, and the client's own reply if the user or a tool had the last word; not after a compaction, if what
    the client noted down after the summary is the end."""
    end = len(lines)
    while end and lines[end - 1].author is Author.COMMAND:
        end -= 1
    yield from lines[:end]
    last = next((line for line in reversed(lines[:end]) if line.is_speech), None)
    is_compacted = last is not None and last.is_summary and lines[end - 1] is not last
    is_open = last is not None and last.author is not Author.ASSISTANT and not is_compacted
    if last is not None and is_open and not _ran_command(lines[:end], behaviour):
        if last.author is Author.RESULT and not behaviour.answers_open_calls:
            yield SentLine(Author.USER, [text_block(CONTINUE)])
        yield SentLine(Author.ASSISTANT, [text_block(NO_RESPONSE)])
    yield from lines[end:]


def _ran_command(lines: Sequence[SentLine], behaviour: VersionBehaviour) -> bool:
    """Whether the lines end with commands of the user's after the client's note about them."""
    said = (line for line in reversed(lines) if line.is_speech)
    first = next(itertools.dropwhile(lambda line: line.is_command, said), None)
    return behaviour.leaves_commands_open and first is not None and first.is_caveat


# ---- rule 7 ------------------------------------------------------------------------------------------------


def _turns(lines: Iterable[SentLine]) -> list[_Turn]:
    turns: list[_Turn] = []
    replies: dict[str, _Reply] = {}
    """Those since the last prompt: only results and other replies may come between the lines of a reply."""
    for line in lines:
        last = turns[-1] if turns else None
        if line.author is not Author.ASSISTANT:
            turn = last if isinstance(last, _UserTurn) else _UserTurn()
            turn.add(line)
            turns += [turn] if turn is not last else []
            continue
        if isinstance(last, _UserTurn) and last.is_prompt:
            replies.clear()
        if line.reply in replies:
            replies[line.reply].add(line)
            continue
        turns.append(reply := _Reply())
        reply.add(line)
        if line.reply:
            replies[line.reply] = reply
    return turns


def _pair(turns: list[_Turn]) -> None:
    """Answer each call directly after its reply, and leave out all other results (rule 8)."""
    for at in range(len(turns) - 1, -1, -1):
        turn = turns[at]
        if isinstance(turn, _Reply) and turn.call_ids():
            following = turns[at + 1] if at + 1 < len(turns) else None
            if not isinstance(following, _UserTurn):
                turns.insert(at + 1, _UserTurn())
    calls: list[str] = []
    for turn in turns:
        if isinstance(turn, _Reply):
            calls = turn.call_ids()
            continue
        turn.lines = list(_paired(turn.lines, calls))
        calls = []


def _paired(lines: Sequence[SentLine], calls: Sequence[str]) -> Iterator[SentLine]:
    answers = {_answered(line) for line in lines}
    for call_id in calls:
        if call_id not in answers:
            yield SentLine(Author.RESULT, [error_result(call_id, MISSING_RESULT)])
    open_calls = set(calls)
    for line in lines:
        if line.author is not Author.RESULT:
            yield line
        elif _answered(line) in open_calls:
            open_calls.remove(_answered(line))
            yield line


# ---- rule 9 on messages ------------------------------------------------------------------------------------


def _reply_content(blocks: list[ContentBlock], behaviour: VersionBehaviour, *, keeps_order: bool) -> list[ContentBlock]:
    if behaviour.drops_blank_texts:
        blocks = [block for block in blocks if not is_blank_text(block)]
    blocks = [block for block in blocks if block is not _SECOND] or blocks[:1]
    if behaviour.calls_last and not keeps_order and any(map(is_text, blocks)):
        blocks = sorted(blocks, key=is_call)
    return blocks or [_reply_text(NO_CONTENT)]


def _thinks_around_call(blocks: Sequence[ContentBlock]) -> bool:
    """Whether thinking stands before a call, and again after it."""
    thoughts = [at for at, block in enumerate(blocks) if block.get("type") in _THINKING]
    return bool(thoughts) and any(is_call(block) for block in blocks[thoughts[0] : thoughts[-1]])


def _reply_text(text: str) -> ContentBlock:
    """A text of the client's in a reply."""
    return {**text_block(text), "citations": []}


_SECOND: Final = _reply_text(SECOND_CALL)
"""Stands for a repeated call in a reply of which nothing else is left."""
