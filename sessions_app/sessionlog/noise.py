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
_COMMAND: Final = re.compile(r"<command-name>([^<>]*)</command-name>")
_ARGUMENTS: Final = re.compile(r"<command-args>([^<>]*)</command-args>")
_TAG: Final = re.compile(r"</?(?:local-command|command|bash)-[a-z]+>")
_IMAGE: Final = re.compile(r"<image\b[^<>\n]{0,1000}>\s*(?:\[image\]\s*)?</image>\s*")


def is_noise(text: str) -> bool:
    """Whether a user's message consists of nothing but such records. False for a blank one."""
    words = text.strip()
    if not words.startswith(("<", "[", "/")):
        return False
    return not _INTERRUPTION.sub("", _MARKUP.sub("", words)).strip() or _SLASH_COMMAND.fullmatch(words) is not None


def noise_words(text: str) -> str:
    """What such a record says, without its tags: the command and its arguments, or what they enclose."""
    command = _COMMAND.search(text)
    if command is None:
        return " ".join(_TAG.sub(" ", text).split())
    arguments = _ARGUMENTS.search(text)
    return " ".join(f"{command[1]} {arguments[1] if arguments else ''}".split())


def without_images(text: str) -> str:
    """The beginning of a user's message, without the tags in which some clients record its images before it, unless
    there is nothing else."""
    return text if not text.startswith("<image") else _IMAGE.sub("", text) or text
