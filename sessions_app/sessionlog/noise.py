"""PURE: messages that a coding agent recorded under the user's name although the user did not write them.

Slash commands, their output, and notes of an interruption say nothing about the task. They are recorded and counted
like any message, but skipped when a message represents the task: for titles and default queries.
"""

from __future__ import annotations

import re
from typing import Final

_MARKUP: Final = re.compile(
    r"<(local-command-[a-z]+|command-[a-z]+|bash-(?:input|stdout|stderr))>.*?(?:</\1>|\Z)", re.DOTALL
)
_INTERRUPTION: Final = re.compile(r"\[Request interrupted by user[^\[\]\n]*\]")
_SLASH_COMMAND: Final = re.compile(r"/[A-Za-z][\w:.-]*(?:[ \t][^\n]*)?")


def is_noise(text: str) -> bool:
    """Whether a user's message consists of nothing but such records. False for a blank one."""
    words = text.strip()
    if not words.startswith(("<", "[", "/")):
        return False
    return (
        not _INTERRUPTION.sub("", _MARKUP.sub("", words)).strip()
        or _SLASH_COMMAND.fullmatch(words) is not None
    )
