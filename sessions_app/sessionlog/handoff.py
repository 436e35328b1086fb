"""A hand-off: the kept part of a conversation as Markdown, to be pasted into a new one."""

from collections.abc import Iterable, Mapping
from typing import Final

from .context import Message
from .entries import Block, BlockType, Role, Texts

_HEADINGS: Final = {Role.USER: "User", Role.ASSISTANT: "Assistant", Role.TOOL_RESULT: "Tool result"}
_FENCE: Final = "```"


def handoff(messages: Iterable[Message], texts: Mapping[str, Texts]) -> str:
    """The kept messages in order, without thinking; `texts` are those of their entries, by id."""
    return "\n\n".join(filter(None, (_section(one, texts[one.source.id]) for one in messages))) + "\n"


def _section(message: Message, texts: Texts) -> str:
    if message.blocks is None:
        text = message.text(texts)
    else:
        said = (block for block in message.blocks if not block.is_thinking)
        text = "\n\n".join(_block_text(block, texts) for block in said)
    if not text.strip():
        return ""
    heading = f"## {_HEADINGS.get(message.role, message.role)}"
    return f"{heading}\n\n{fenced(text) if message.role == Role.TOOL_RESULT else text}"


def _block_text(block: Block, texts: Texts) -> str:
    """The text of a block; of a call, its tool and its arguments."""
    text = texts.block(block.index)
    if block.type != BlockType.TOOL_CALL:
        return text
    return f"Called {text.removeprefix(f'{BlockType.TOOL_CALL} {block.call_id} ')}"


def fenced(text: str) -> str:
    """A text in a code fence longer than any that it contains."""
    fence = _FENCE
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
