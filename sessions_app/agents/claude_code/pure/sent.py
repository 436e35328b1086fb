"""The messages of a request, as Claude Code makes them of a context.

| rule | what the client does                                                                      | here            |
|------|-------------------------------------------------------------------------------------------|-----------------|
| 7    | a turn of the user is one message (see below); lines of a reply are one message           | `_turns`        |
| 8    | a call that nothing answers is left out with its line; one that is not answered directly  | `_called_lines` |
|      | gets a result that says so; a result without its call, and a second call or result of     | `_pair`         |
|      | one id, are left out                                                                      |                 |
| 9    | what has no content is filled or left out; so is a reply that is only thinking            | `_said_lines`   |
| 10   | thinking is sent as it was recorded                                                       |                 |
| 11   | after a last word of the user's the client adds a reply; the next prompt follows that     | `_closed`       |

Versions before 2.1.143 differ (`is_older`):

- Calls at the end of the session are left out, and the user asks to continue; newer ones answer these calls.
- Texts of white space beside others are sent.
- In a reply with a text, calls keep their places; in newer versions they come after everything else, unless one stands
  between thoughts on its own line.
- A result before its call is not moved behind it.
- Attachments are not sent as they were rendered when they were written; in newer versions, each text but the last one
  of such an attachment is a message.
- Thinking of other models than the last one is sent.
- After commands that the user ran in the client a reply is added.
- The next prompt is joined with one that an error answered.
- A notice of a task in the background is not made one text in words of the client's own.

Between two replies the client sends (rule 7)

    results, then attachments, then texts        one message
    attachments of the system                    one message after it; for older models, they are the user's

Of an attachment with several texts, the first one in a turn without results is a message for each text but the last.
The texts of one directly after a result become its end, unless it is of a file. A text ends with a newline if what
follows it directly is a text of the user, or of a file.

So a plan that deletes every reply between two turns moves what it keeps of them (`ClaudeCodeTurns`):

    U1 | reply | A2 U2    a text, a reply, a file that was read again, a text; without the reply: A2 U1 U2

A reply of which nothing is sent (rules 8 and 9) parts no turns; one of white space does here, because digests do not
show it.

Sessions of 2.1.310 and newer have a ledger of requests: a proof of Redline's reading on the user's own file.

    api-request-blob    a message that no line of the session gives, with its hash
    api-request         a request: its messages, as hashes: the first `keep` of the request `base`, then `tail`

The hash of a message is the SHA-256 of its JSON: keys sorted, no spaces, a text as one block, without `cache_control`.
Each request was made of the lines before it. What Redline makes of these lines is compared with what was sent: the
messages are the same if their hashes are.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sessions_app.agents.pure import fields
from sessions_app.agents.pure.formats import Moved, SentPiece
from sessions_app.sessionlog.certificate import LedgerResult
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Block, Entry, Role
from sessions_app.sessionlog.jsjson import parse, trim_end

from .parser import FILES, QUEUED, images_of, is_result, rendered_texts, unrendered_text
from .reader import ClaudeCodeReader, ClaudeCodeTree, OlderClaudeCodeReader

ContentBlock = dict[str, Any]


class Author(Enum):
    """The author of a line, as far as the rules distinguish them."""

    USER = "user"
    ASSISTANT = "assistant"
    RESULT = "result"
    COMMAND = "command"
    CLIENT = "client"
    """An attachment that is sent as the user's."""
    SYSTEM = "system"
    """An attachment that is sent as the system's."""


class SentLine(NamedTuple):
    """The blocks of one message of a context, in the order of the context."""

    author: Author
    blocks: list[ContentBlock]
    reply: str = ""
    sent: bool = True
    ends_with_result: bool = False
    """Whether a result stands after these blocks on their line."""
    is_text: bool = False
    """Whether the content is recorded as a text, not as blocks."""
    is_caveat: bool = False
    """Whether it is the client's note before a command that the user ran in the client."""
    is_summary: bool = False
    """Whether it is the summary of a compaction."""
    model: str = ""
    is_file: bool = False
    """Whether it is an attachment of a file or a directory."""
    is_reworded: bool = False
    """Whether the client adds its own words, which are not among the blocks."""

    @property
    def is_speech(self) -> bool:
        """Whether the user, the model or a tool said it."""
        return self.author in (Author.USER, Author.ASSISTANT, Author.RESULT)

    def call_ids(self) -> Iterator[str]:
        return (str(block.get("id")) for block in self.blocks if is_call(block))


CALL_FIELDS: Final = ("type", "id", "name", "input")
CAVEAT: Final = ("<local-command-caveat>",)
COMMAND: Final = ("<command-name>", "<local-command-stdout>", "<local-command-stderr>")
OLDER_MODEL: Final = re.compile(r"claude-(opus-4-[567]|sonnet-4-[56]|haiku-4-5)(?!\d)")
"""Models to which the client sends no system messages between others; unknown models receive them."""
NOTICE: Final = "task-notification"
"""The `origin` of a user's line that reports on a background task, such as a subagent's."""
_AUTHORS: Final = {Role.ASSISTANT: Author.ASSISTANT, Role.TOOL_RESULT: Author.RESULT, Role.COMMAND: Author.COMMAND}


def sent_lines(context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterator[SentLine]:
    """The lines of a request, one for each message and in their order; `line` reads an entry's recorded bytes."""
    is_older = _is_older(context)
    for message in context.messages:
        data, entry = parse(line(message.entry)), message.entry
        if message.role == Role.CUSTOM:
            yield attachment_line(data, is_older=is_older)
        else:
            author = _AUTHORS.get(message.role, Author.USER)
            blocks = content_of(message, data)
            of_task = fields.mapping(data, "origin").get("kind") == NOTICE
            is_notice = not is_older and author is Author.USER and of_task
            if is_notice and len(blocks) > 1 and all(map(is_text, blocks)):
                blocks = [text_block("\n".join(str(block.get("text", "")) for block in blocks))]
            recorded = fields.items(fields.mapping(data, "message"), "content")
            yield SentLine(
                author,
                blocks,
                reply=entry.reply,
                sent=message.sent,
                ends_with_result=bool(recorded) and is_result(recorded[-1]),
                is_text=message.blocks is None,
                is_summary=message.role == Role.COMPACTION_SUMMARY,
                is_caveat=data.get("isMeta") is True and _begins(blocks, CAVEAT),
                model=entry.model[1] if entry.model is not None else "",
                is_reworded=is_notice,
            )


def _is_older(context: ActiveContext) -> bool:
    """Whether a context was rebuilt as versions before 2.1.143 do."""
    return context.reader == OlderClaudeCodeReader.name


def content_of(message: Message, data: Mapping[str, Any]) -> list[ContentBlock]:
    """The recorded blocks that a message has; `data` is the object of its entry."""
    if message.role == Role.CUSTOM:
        texts = rendered_texts(data)
        return [*map(text_block, texts)] if texts else _unrendered(fields.mapping(data, "attachment"))
    if message.role == Role.COMMAND:
        return [text_block(data["content"])]
    if message.role == Role.TOOL_RESULT:
        return [_result(data, message)]
    blocks = _left(data["message"]["content"], message.blocks)
    if message.role != Role.ASSISTANT:
        return blocks
    # Of a call only what the provider knows is sent.
    return [{name: one[name] for name in CALL_FIELDS if name in one} if is_call(one) else one for one in blocks]


def _begins(blocks: Sequence[ContentBlock], marks: tuple[str, ...]) -> bool:
    return bool(blocks) and str(blocks[0].get("text", "")).startswith(marks)


def text_block(text: str) -> ContentBlock:
    return {"type": "text", "text": text}


def is_text(block: ContentBlock) -> bool:
    return block.get("type") == "text"


def is_blank_text(block: ContentBlock) -> bool:
    return is_text(block) and not str(block.get("text", "")).strip()


def is_call(block: ContentBlock) -> bool:
    return block.get("type") == "tool_use"


def error_result(call_id: str, words: str) -> ContentBlock:
    return {"type": "tool_result", "tool_use_id": call_id, "content": words, "is_error": True}


def with_text(result: ContentBlock, text: str) -> ContentBlock:
    """A tool result with a text appended."""
    content = result.get("content")
    if not isinstance(content, list):
        # What a result ends with is trimmed only here.
        before = trim_end(str(content)) if content else ""
        return {**result, "content": f"{before}\n\n{text}" if before else text}
    last = [*content]
    if last and is_text(last[-1]):
        last[-1] = {**last[-1], "text": f"{last[-1].get('text', '')}\n"}
    return {**result, "content": [*last, text_block(text)]}


def _left(content: Any, blocks: tuple[Block, ...] | None) -> list[ContentBlock]:
    """The remaining blocks of a content; a text is one block, and items that are not blocks are left out."""
    if isinstance(content, str):
        return [text_block(content)]
    left = (content[block.index] for block in blocks or ())
    return [block for block in left if isinstance(block, dict) and isinstance(block.get("type"), str)]


def _result(data: Mapping[str, Any], message: Message) -> ContentBlock:
    """The tool result of an entry, which may share its line with others."""
    block = data if is_result(data) else next(filter(is_result, reversed(data["message"]["content"])))
    if message.blocks is None or len(message.blocks) == len(message.entry.blocks or ()):
        return dict(block)
    return {**block, "content": _left(block["content"], message.blocks)}


def attachment_line(data: Mapping[str, Any], *, is_older: bool) -> SentLine:
    """An attachment; without a rendered text, what it adds without the client's words.

    Older versions do not know the attachments of those that write rendered texts, but for one.
    """
    texts, attachment = rendered_texts(data), fields.mapping(data, "attachment")
    author = Author.SYSTEM if data.get("renderedRole", "system") == "system" else Author.CLIENT
    if is_older:
        author = Author.CLIENT
        texts = None if texts is None or attachment.get("type") == QUEUED else []
    blocks = [*map(text_block, texts)] if texts is not None else _unrendered(attachment)
    author = author if all(map(is_text, blocks)) else Author.CLIENT
    is_reworded = texts is None and any(map(is_text, blocks))
    return SentLine(author, blocks, is_file=attachment.get("type") in FILES, is_reworded=is_reworded)


def _unrendered(attachment: Mapping[str, Any]) -> list[ContentBlock]:
    """The blocks of an attachment without the client's words: its text, if it has one, and its images."""
    text, images = unrendered_text(attachment), images_of(attachment)
    return [*([text_block(text)] if text or not images else []), *images]


NO_CONTENT: Final = "(no content)"
REMINDER: Final = "<system-reminder>\n{}\n</system-reminder>"
NEXT_PROMPT: Final = SentLine(Author.USER, [text_block("")])
"""A placeholder for the prompt after the session: a text before it is joined with it. It is not sent."""


def user_messages(lines: Sequence[SentLine], *, is_older: bool) -> Iterator[Mapping[str, Any]]:
    """The messages of a user's turn, and the message with the system's attachments."""
    results: list[ContentBlock] = []
    added: list[SentLine] = []
    said: list[SentLine] = []
    ends_with_result = False
    for line in lines:
        can_end_result = not line.is_file and all(map(is_text, line.blocks))
        if line.author is Author.CLIENT and ends_with_result and can_end_result:
            results[-1] = with_text(results[-1], "\n\n".join(block["text"] for block in line.blocks))
        elif line.author is Author.CLIENT:
            if not added and not results and all(map(is_text, line.blocks)):
                *apart, last = line.blocks
                yield from ({"role": "user", "content": [block]} for block in apart)
                line = line._replace(blocks=[last])
            added.append(line)
            ends_with_result = False
        elif line.author is not Author.SYSTEM:
            is_result = line.author is Author.RESULT
            results += line.blocks if is_result else []
            ends_with_result = ends_with_result or is_result
            said.append(line)
    system = [line for line in lines if line.author is Author.SYSTEM]
    texts = ["\n".join(_without_tags(block["text"]) for block in line.blocks) for line in system]
    if system and not (said or added or results):
        yield {"role": "user", "content": [text_block(REMINDER.format(text)) for text in texts]}
        return
    content = [*results, *_texts_of([*added, *said])]
    is_one_text = len(content) == 1 and bool(said) and said[0].is_text
    if not (is_older or is_one_text):
        content = [block for block in content if not is_blank_text(block)]
    yield {"role": "user", "content": content or [text_block(NO_CONTENT)]}
    if system:
        yield {"role": "system", "content": [text_block("\n\n".join(texts))]}


def _without_tags(text: str) -> str:
    """A text for the system without the tags of a reminder, with which it is recorded."""
    before, after = REMINDER.split("{}")
    return text.removeprefix(before).removesuffix(after) if text.startswith(before) else text


def _texts_of(lines: Sequence[SentLine]) -> Iterator[ContentBlock]:
    """The blocks that are not results."""
    for line, following in itertools.zip_longest(lines, lines[1:]):
        if line.author is Author.RESULT or line is NEXT_PROMPT:
            continue
        *before, last = line.blocks
        yield from map(_ended, before) if line.is_file else before
        yield _ended(last) if following is not None and _continues(line, following) else last


def _ended(block: ContentBlock) -> ContentBlock:
    """A text with a newline at its end."""
    return {**block, "text": f"{block.get('text', '')}\n"} if is_text(block) else block


def _continues(line: SentLine, following: SentLine) -> bool:
    """Whether a line begins with a text of the user, or of a file, directly after another line."""
    is_other = following.author is Author.RESULT or (following.author is Author.CLIENT and not following.is_file)
    return not line.ends_with_result and not is_other and is_text(following.blocks[0])


NO_RESPONSE: Final = "No response requested."
CONTINUE: Final = "Continue from where you left off."
SECOND_CALL: Final = "[Tool use interrupted]"
MISSING_RESULT: Final = "[Tool result missing due to internal error]"
INTERRUPTED: Final = "[Tool call interrupted]"
"""Replaces the client's sentence about a call that was open when the session ended."""
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})


_OF_USER: Final = frozenset({Author.USER, Author.COMMAND})
Part = TypeVar("Part", SentLine, SentPiece)


@dataclass(slots=True)
class _Turn(Generic[Part]):
    """What is sent as one message: a reply, or everything between two."""

    is_reply: bool
    parts: list[Part] = field(default_factory=list)


def _turns(parts: Iterable[Part], author_of: Callable[[Part], Author]) -> list[_Turn[Part]]:
    """The turns of a conversation (rule 7)."""
    turns: list[_Turn[Part]] = []
    authors: set[Author] = set()
    """Those of the last turn that is not a reply."""
    replies: dict[str, _Turn[Part]] = {}
    """Those since the last prompt: only results and other replies may come between the lines of a reply."""
    for part in parts:
        author = author_of(part)
        if author is not Author.ASSISTANT:
            if not turns or turns[-1].is_reply:
                turns.append(_Turn(is_reply=False))
                authors.clear()
            authors.add(author)
            turns[-1].parts.append(part)
            continue
        is_prompt = Author.RESULT not in authors and not authors.isdisjoint(_OF_USER)
        if is_prompt and not turns[-1].is_reply:
            replies.clear()
        if part.reply not in replies:
            turns.append(_Turn(is_reply=True))
        turn = replies.setdefault(part.reply, turns[-1]) if part.reply else turns[-1]
        turn.parts.append(part)
    return turns


def sent_messages(
    context: ActiveContext, line: Callable[[Entry], bytes], *, closed: bool = True
) -> Iterator[Mapping[str, Any]]:
    """The messages of a context with role and content; a content that is one text is one block.

    Messages that the client adds on each start are not included, nor its own words around recorded content: see
    `reworded_entries`. `closed`: the session is resumed with another prompt; if not, the request is the one after its
    last line.
    """
    is_older, lines = _is_older(context), list(sent_lines(context, line))
    if not is_older:
        lines = list(_with_own_thinking(_with_results_after_calls(lines)))
    if OLDER_MODEL.match(_last_model(lines)):
        lines = [line._replace(author=Author.CLIENT) if line.author is Author.SYSTEM else line for line in lines]
    lines = list(_said_lines(_called_lines(lines, is_older=is_older)))
    if closed:
        lines = list(_closed(lines, is_older=is_older))
    is_parted = not is_older and bool(lines) and not lines[-1].sent
    lines = [line for line in lines if line.sent]
    if closed and not is_parted and lines and lines[-1].author in _OF_USER:
        lines.append(NEXT_PROMPT)
    for turn in _paired(_turns(lines, lambda line: line.author)):
        if turn.is_reply:
            yield {"role": "assistant", "content": _reply_content(turn.parts, is_older=is_older)}
        else:
            yield from user_messages(turn.parts, is_older=is_older)


def reworded_entries(context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterator[str]:
    """The ids of the entries around which the client puts its own words: notices of tasks in the background, such as
    a subagent's, and attachments that were not recorded as rendered."""
    lines = sent_lines(context, line)
    yield from (message.entry.id for message, sent in zip(context.messages, lines, strict=True) if sent.is_reworded)


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


def _last_model(lines: Sequence[SentLine]) -> str:
    """The model of the last reply, with which the client continues."""
    return next((line.model for line in reversed(lines) if line.model), "")


def _with_own_thinking(lines: Sequence[SentLine]) -> Iterator[SentLine]:
    """The lines without thinking of other models than that of the last reply (rule 10)."""
    model = _last_model(lines)
    for line in lines:
        if line.model in ("", model):
            yield line
        elif blocks := [block for block in line.blocks if block.get("type") not in _THINKING]:
            yield line._replace(blocks=blocks)


def _answered(line: SentLine) -> str:
    return str(line.blocks[0].get("tool_use_id")) if line.author is Author.RESULT else ""


def _called_lines(lines: Sequence[SentLine], *, is_older: bool) -> Iterator[SentLine]:
    """The lines without calls that nothing answers, and without second calls of one id."""
    answered = {_answered(line) for line in lines}
    end = len(lines) if is_older else _open_reply(lines)
    kept = end if is_older else min(end, _open_turn(lines))
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
    """The blocks without repeated calls; ids of calls are added to `seen`."""
    for block in blocks:
        call_id = str(block.get("id")) if is_call(block) else None
        if call_id not in seen:
            yield block
        if call_id is not None:
            seen.add(call_id)


def _open_reply(lines: Sequence[SentLine]) -> int:
    """The index of the first line of the reply whose open calls end the session; the number of lines if it ends
    otherwise.
    """
    end, reply = len(lines), None
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at]
        if line.author is Author.ASSISTANT and reply in (None, line.reply):
            end, reply = at, line.reply
        elif line.is_speech and line.author is not Author.RESULT:
            break
    return end


def _open_turn(lines: Sequence[SentLine]) -> int:
    """The index of the first line after the last prompt, if the session ends with a result, or with calls directly
    after one; otherwise the number of lines.
    """
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


def _closed(lines: Sequence[SentLine], *, is_older: bool) -> Iterator[SentLine]:
    """The lines, with a reply added by the client if the last message is the user's or a tool's. None is added after a
    compaction if the session ends with the client's notes on the summary.
    """
    end = len(lines)
    while end and lines[end - 1].author is Author.COMMAND:
        end -= 1
    yield from lines[:end]
    last = next((line for line in reversed(lines[:end]) if line.is_speech), None)
    is_compacted = last is not None and last.is_summary and lines[end - 1] is not last
    is_open = last is not None and last.author is not Author.ASSISTANT and not is_compacted
    if last is not None and is_open and (is_older or not _ran_command(lines[:end])):
        if last.author is Author.RESULT and is_older:
            yield SentLine(Author.USER, [text_block(CONTINUE)])
        yield SentLine(Author.ASSISTANT, [text_block(NO_RESPONSE)])
    yield from lines[end:]


def _ran_command(lines: Sequence[SentLine]) -> bool:
    """Whether the lines end with commands of the user's after the client's note about them. The text of a command
    begins with it, or with what it said."""
    said = (line for line in reversed(lines) if line.is_speech)
    first = next(
        itertools.dropwhile(lambda line: line.author is Author.USER and _begins(line.blocks, COMMAND), said), None
    )
    return first is not None and first.is_caveat


# ---- rules 8 and 9 on messages -----------------------------------------------------------------------------


def _paired(turns: Iterable[_Turn[SentLine]]) -> Iterator[_Turn[SentLine]]:
    """The turns with an answer to each call directly after its reply, and without all other results (rule 8)."""
    calls: list[str] = []
    for turn in turns:
        if not turn.is_reply:
            yield _Turn(is_reply=False, parts=list(_with_answers(turn.parts, calls)))
            calls = []
            continue
        if calls:
            yield _Turn(is_reply=False, parts=list(_with_answers((), calls)))
        yield turn
        calls = [call_id for line in turn.parts for call_id in line.call_ids()]
    if calls:
        yield _Turn(is_reply=False, parts=list(_with_answers((), calls)))


def _with_answers(lines: Sequence[SentLine], calls: Sequence[str]) -> Iterator[SentLine]:
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


def _reply_content(lines: Sequence[SentLine], *, is_older: bool) -> list[ContentBlock]:
    blocks = [block for line in lines for block in line.blocks if is_older or not is_blank_text(block)]
    blocks = [block for block in blocks if block is not _SECOND] or blocks[:1]
    keeps_order = is_older or any(_thinks_around_call(line.blocks) for line in lines)
    if not keeps_order and any(map(is_text, blocks)):
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
"""Replaces a repeated call if nothing else is left of its reply."""


@dataclass(frozen=True, slots=True)
class ClaudeCodeTurns:
    """The turns of a group of versions."""

    reader: ClaudeCodeReader

    def arranged(self, messages: Sequence[Message], *, is_new: bool) -> list[Message]:
        return self.reader.arranged(messages, is_new=is_new)

    def moved(
        self, before: Sequence[SentPiece], after: Sequence[SentPiece], line: Callable[[str], bytes]
    ) -> Sequence[Moved]:
        old, new = _places(before), _places(after)
        constituents: dict[int, set[int]] = {}
        for entry_id in new.keys() & old.keys():
            constituents.setdefault(new[entry_id], set()).add(old[entry_id])
        are_joined = any(len(one) > 1 for one in constituents.values())
        is_older_model = are_joined and self._is_older_model(before, line)

        def rank(piece: SentPiece) -> int:
            if piece.role != Role.CUSTOM:
                return int(piece.role not in (Role.TOOL_RESULT, Role.ASSISTANT))
            if is_older_model or len(constituents[new[piece.entry_id]]) < 2:
                return 0
            is_older = isinstance(self.reader, OlderClaudeCodeReader)
            attachment = attachment_line(parse(line(piece.entry_id)), is_older=is_older)
            return 2 if attachment.author is Author.SYSTEM else 0

        ranked = [(piece.entry_id, rank(piece)) for piece in before if piece.entry_id in old and piece.entry_id in new]
        was = sorted(ranked, key=lambda one: (old[one[0]], one[1]))
        will_be = sorted(ranked, key=lambda one: (new[one[0]], one[1]))
        return _overtaking([entry_id for entry_id, _ in was], [entry_id for entry_id, _ in will_be])

    def _is_older_model(self, pieces: Sequence[SentPiece], line: Callable[[str], bytes]) -> bool:
        """Whether attachments of the system are sent as the user's."""
        last = next((piece for piece in reversed(pieces) if piece.role == Role.ASSISTANT), None)
        model = parse(line(last.entry_id))["message"].get("model") if last is not None else None
        return isinstance(model, str) and OLDER_MODEL.match(model) is not None


def _places(pieces: Sequence[SentPiece]) -> dict[str, int]:
    """The number of the message in which each sent entry is sent, by entry id (rule 7)."""
    answered = {piece.result_for for piece in pieces if piece.role == Role.TOOL_RESULT}
    spoken = {piece.reply for piece in pieces if piece.role == Role.ASSISTANT and not _is_thinking(piece)}
    said = (
        piece
        for piece in pieces
        if piece.role != Role.ASSISTANT
        or not (
            (piece.call_ids and answered.isdisjoint(piece.call_ids))
            or (_is_thinking(piece) and piece.reply not in spoken)
        )
    )
    authors = {**_AUTHORS, Role.CUSTOM: Author.CLIENT}
    turns = _turns(said, lambda piece: authors.get(piece.role, Author.USER))
    return {piece.entry_id: number for number, turn in enumerate(turns) for piece in turn.parts}


def _is_thinking(piece: SentPiece) -> bool:
    return bool(piece.blocks) and all(block.is_thinking for block in piece.blocks)


def _overtaking(was: Sequence[str], will_be: Iterable[str]) -> list[Moved]:
    """The entries that move before others which they followed, each with the first of these, in their new order."""
    place = {entry_id: number for number, entry_id in enumerate(was)}
    first = len(was)
    found = []
    for entry_id in reversed(list(will_be)):
        if first < place[entry_id]:
            found.append(Moved(entry_id, was[first]))
        first = min(first, place[entry_id])
    return found[::-1]


REQUEST: Final = "api-request"
BLOB: Final = "api-request-blob"
EFFORT: Final = "output_config"
COMPARED: Final = 10
"""The number of latest requests that are compared: each is rebuilt from the beginning of the session."""


class RecordedRequest(NamedTuple):
    """A request in the ledger, on a line of the session, and its messages as hashes."""

    number: int
    id: str
    hashes: tuple[str, ...]
    effort: Any
    """The effort of the reply, which the client sent in a system message."""


def ledger_result(
    entries: Sequence[Entry], line: Callable[[Entry], bytes], compared: int = COMPARED
) -> LedgerResult | None:
    """The comparison for the last requests of a session, given by its entries; None if it has no ledger."""
    ledger = [(entry.number, json.loads(line(entry))) for entry in entries if entry.type in (REQUEST, BLOB)]
    requests = list(recorded_requests(ledger))
    if not requests:
        return None
    blobs = {fields.text(data, "hash") for _, data in ledger if data.get("type") == BLOB}
    counts = [0, 0, 0, 0]
    for request in requests[-compared:]:
        tree = ClaudeCodeTree([entry for entry in entries if entry.number < request.number])
        context = ClaudeCodeReader().rebuild(tree.branch(tree.leaf.id))
        rest = _not_reproduced(request, sent_messages(context, line, closed=False))
        recorded = sum(one in blobs for one in rest)
        counts[0] += recorded == len(rest)
        counts[1] += len(request.hashes)
        counts[2] += len(request.hashes) - len(rest)
        counts[3] += recorded
    equal, messages, reproduced, recorded = counts
    return LedgerResult(len(requests), min(compared, len(requests)), equal, messages, reproduced, recorded)


def _not_reproduced(request: RecordedRequest, messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """The hashes in a request, in order, that none of these messages has."""
    hashes, rest, place = [], [], 0
    for message in messages:
        hashes.append({message_hash(message)})
        if message["role"] == "system":
            hashes[-1].add(message_hash({**message, EFFORT: request.effort}))
    for one in request.hashes:
        at = next((at for at in range(place, len(hashes)) if one in hashes[at]), None)
        if at is None:
            rest.append(one)
        else:
            place = at + 1
    return rest


def recorded_requests(ledger: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[RecordedRequest]:
    """The requests on these lines, given with their numbers. A request whose base is not there is left out."""
    known: dict[str, tuple[str, ...]] = {}
    for number, data in ledger:
        request_id, base = fields.text_or_none(data, "id"), fields.text_or_none(data, "base")
        keep = data.get("keep")
        if data.get("type") != REQUEST or not isinstance(data.get("tail"), list) or request_id is None:
            continue
        kept: tuple[str, ...] = ()
        if isinstance(keep, int) and keep:
            if base is None or base not in known or keep > len(known[base]):
                continue
            kept = known[base][:keep]
        hashes = (*kept, *fields.texts(data, "tail"))
        known[request_id] = hashes
        yield RecordedRequest(number, request_id, hashes, fields.mapping(data, "params").get(EFFORT))


def message_hash(message: Mapping[str, Any]) -> str:
    """The ledger's hash of a message."""
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if isinstance(content, list):
        content = [
            {name: value for name, value in block.items() if name != "cache_control"}
            if isinstance(block, dict)
            else block
            for block in content
        ]
    text = json.dumps({**message, "content": content}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
