"""What each message of a context contributes to a request: its content blocks, as they were recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import Block, Entry, Role
from sessions_app.sessionlog.jsjson import parse, trim_end

from .attachments import FILES, QUEUED, images_of, rendered_texts, unrendered_text
from .records import is_result

ContentBlock = dict[str, Any]


class Author(Enum):
    """Who contributes a line, as far as the rules tell them apart."""

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
    """Whether it stands for what was compacted."""
    model: str = ""
    is_file: bool = False
    """Whether it is an attachment of a file or a directory."""
    is_reworded: bool = False
    """Whether the client puts words of its own around it, which are not among the blocks."""

    @property
    def is_speech(self) -> bool:
        """Whether the user, the model or a tool said it."""
        return self.author in (Author.USER, Author.ASSISTANT, Author.RESULT)

    @property
    def is_command(self) -> bool:
        """Whether the user ran a command in the client: with it, or with what it said, begins the text."""
        return self.author is Author.USER and _begins(self.blocks, COMMAND)

    def call_ids(self) -> Iterator[str]:
        for block in self.blocks:
            if is_call(block):
                yield str(block.get("id"))


CALL_FIELDS: Final = ("type", "id", "name", "input")
CAVEAT: Final = ("<local-command-caveat>",)
COMMAND: Final = ("<command-name>", "<local-command-stdout>", "<local-command-stderr>")
OLDER_MODEL: Final = re.compile(r"claude-(opus-4-[567]|sonnet-4-[56]|haiku-4-5)(?!\d)")
"""Models to which the client sends no messages of the system between others; to unknown ones it does."""
NOTICE: Final = "task-notification"
"""The origin of what a user's line says of a task in the background, such as a subagent's."""
_AUTHORS: Final = {
    Role.ASSISTANT: Author.ASSISTANT,
    Role.TOOL_RESULT: Author.RESULT,
    Role.COMMAND: Author.COMMAND,
}


def sent_lines(
    messages: Iterable[Message], line: Callable[[Entry], bytes], *, reads_rendered: bool, rewords_notices: bool
) -> Iterator[SentLine]:
    """The lines of a request, one for each message and in their order; `line` reads an entry's recorded bytes.

    `reads_rendered`: attachments are sent as they were rendered. `rewords_notices`: notices are reworded.
    """
    for message in messages:
        data, entry = parse(line(message.entry)), message.entry
        if message.role == Role.CUSTOM:
            yield attachment_line(data, reads_rendered=reads_rendered)
        else:
            author = _AUTHORS.get(message.role, Author.USER)
            blocks = content_of(message, data)
            is_notice = rewords_notices and author is Author.USER and _is_notice(data)
            yield SentLine(
                author,
                _one_text(blocks) if is_notice else blocks,
                reply=entry.reply,
                sent=message.sent,
                ends_with_result=_ends_with_result(data),
                is_text=message.blocks is None,
                is_summary=message.role == Role.COMPACTION_SUMMARY,
                is_caveat=data.get("isMeta") is True and _begins(blocks, CAVEAT),
                model=entry.model[1] if entry.model is not None else "",
                is_reworded=is_notice,
            )


def last_model(lines: Sequence[SentLine]) -> str:
    """The model of the last reply, with which the client goes on."""
    return next((line.model for line in reversed(lines) if line.model), "")


def for_model(model: str, lines: Sequence[SentLine]) -> list[SentLine]:
    """The lines as a model takes them: for an older one, attachments of the system are the user's."""
    if not OLDER_MODEL.match(model):
        return list(lines)
    return [line._replace(author=Author.CLIENT) if line.author is Author.SYSTEM else line for line in lines]


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
    return [*map(_as_sent, blocks)] if message.role == Role.ASSISTANT else blocks


def _is_notice(data: Mapping[str, Any]) -> bool:
    return fields.mapping(data, "origin").get("kind") == NOTICE


def _one_text(blocks: list[ContentBlock]) -> list[ContentBlock]:
    """Blocks that are texts as one text."""
    if len(blocks) < 2 or not all(map(is_text, blocks)):
        return blocks
    return [text_block("\n".join(str(block.get("text", "")) for block in blocks))]


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
    """A result with a text at its end."""
    content = result.get("content")
    if not isinstance(content, list):
        # What a result ends with is trimmed only here.
        before = trim_end(str(content)) if content else ""
        return {**result, "content": f"{before}\n\n{text}" if before else text}
    last = [*content]
    if last and is_text(last[-1]):
        last[-1] = {**last[-1], "text": f"{last[-1].get('text', '')}\n"}
    return {**result, "content": [*last, text_block(text)]}


def _as_sent(block: Any) -> Any:
    """A block of a reply; of a call only what the provider knows is sent."""
    if fields.has_type(block, "tool_use"):
        return {name: block[name] for name in CALL_FIELDS if name in block}
    return block


def _left(content: Any, blocks: tuple[Block, ...] | None) -> list[ContentBlock]:
    """The blocks of a content that are left of it; a text is one block, and what is not a block is left out."""
    if isinstance(content, str):
        return [text_block(content)]
    left = (content[block.index] for block in blocks or ())
    return [block for block in left if isinstance(block, dict) and isinstance(block.get("type"), str)]


def _result(data: Mapping[str, Any], message: Message) -> ContentBlock:
    """The result that an entry is, on a line of its own or with others."""
    block = data if is_result(data) else next(filter(is_result, reversed(data["message"]["content"])))
    if message.blocks is None or len(message.blocks) == len(message.entry.blocks or ()):
        return dict(block)
    return {**block, "content": _left(block["content"], message.blocks)}


def _ends_with_result(data: Mapping[str, Any]) -> bool:
    content = fields.items(fields.mapping(data, "message"), "content")
    return bool(content) and is_result(content[-1])


def attachment_line(data: Mapping[str, Any], *, reads_rendered: bool) -> SentLine:
    """An attachment; without a rendered text, what it adds without the client's words.

    Versions that do not read rendered texts do not know the attachments of those that write them, but for one.
    """
    texts, attachment = rendered_texts(data), fields.mapping(data, "attachment")
    author = Author.SYSTEM if data.get("renderedRole", "system") == "system" else Author.CLIENT
    if not reads_rendered:
        author = Author.CLIENT
        texts = None if texts is None or attachment.get("type") == QUEUED else []
    blocks = [*map(text_block, texts)] if texts is not None else _unrendered(attachment)
    author = author if all(map(is_text, blocks)) else Author.CLIENT
    is_reworded = texts is None and any(map(is_text, blocks))
    return SentLine(author, blocks, is_file=attachment.get("type") in FILES, is_reworded=is_reworded)


def _unrendered(attachment: Mapping[str, Any]) -> list[ContentBlock]:
    """What an attachment adds without the client's words: its text, if it has one, and its images."""
    text, images = unrendered_text(attachment), images_of(attachment)
    return [*([text_block(text)] if text or not images else []), *images]
