"""PURE: what a coding agent's own surroundings recorded under the user's name, though nobody asked for it.

Slash commands, what they printed, and notes of an interruption say nothing of the task. They are recorded and
counted like any message; only where a message stands for the task (a title, a default query) are they passed over.
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
    """Whether a user's message holds nothing but such records. A blank one does not: it holds nothing at all."""
    words = text.strip()
    if not words.startswith(("<", "[", "/")):
        return False
    return (
        not _INTERRUPTION.sub("", _MARKUP.sub("", words)).strip()
        or _SLASH_COMMAND.fullmatch(words) is not None
    )
