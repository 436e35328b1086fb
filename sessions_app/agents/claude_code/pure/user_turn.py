"""The messages of a turn of the user: what Claude Code sends between two replies (rule 7 of `sent`).

    results, then attachments, then texts        one message
    attachments of the system                    one message after it; for older models, they are the user's

Of an attachment with several texts, the first one in a turn without results is a message for each text but the last.
The texts of one directly after a result become its end, unless it is of a file. A text ends with a newline if what
follows it directly is a text of the user, or of a file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .sent_lines import Author, ContentBlock, SentLine, is_blank_text, is_text, text_block, with_text

NO_CONTENT: Final = "(no content)"
REMINDER: Final = "<system-reminder>\n{}\n</system-reminder>"
NEXT_PROMPT: Final = SentLine(Author.USER, [text_block("")])
"""Stands for the prompt after the session, which is joined with a text before it, and not sent here."""


def user_messages(lines: Sequence[SentLine], *, drops_blank_texts: bool) -> Iterator[Mapping[str, Any]]:
    """The messages of a turn, and that of the system's attachments."""
    results: list[ContentBlock] = []
    added: list[SentLine] = []
    said: list[SentLine] = []
    ends_with_result = False
    for line in lines:
        if line.author is Author.CLIENT and ends_with_result and _can_end_result(line):
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
    if drops_blank_texts and not is_one_text:
        content = [block for block in content if not is_blank_text(block)]
    yield {"role": "user", "content": content or [text_block(NO_CONTENT)]}
    if system:
        yield {"role": "system", "content": [text_block("\n\n".join(texts))]}


def _can_end_result(line: SentLine) -> bool:
    return not line.is_file and all(map(is_text, line.blocks))


def _without_tags(text: str) -> str:
    """A text for the system, which is recorded as a reminder for the user."""
    before, after = REMINDER.split("{}")
    return text.removeprefix(before).removesuffix(after) if text.startswith(before) else text


def _texts_of(lines: Sequence[SentLine]) -> Iterator[ContentBlock]:
    """What is not a result."""
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
