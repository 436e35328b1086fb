"""References: the names, paths and numbers that an agent uses for things.

Two modules need them: the embedded planner, to see what later work still mentions, and the lab, to see what a deletion
would have cost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from sessions_app.sessionlog.entries import BlockType

from .transcript import Transcript
from .transcript_entries import WHOLE, Object

REFERENCE_LENGTH: Final = 5
_TOKEN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./:\-][A-Za-z0-9_]+)*", re.ASCII)
_DISTINCTIVE: Final = re.compile(r"[_./:\-0-9]|(?<=.)[A-Z]", re.ASCII)
_BETWEEN_TOKENS: Final = bytes(code if _TOKEN.fullmatch(f"a{chr(code)}a") else ord(" ") for code in range(256))
"""For each byte, itself if it may be inside a token, otherwise a blank."""


def references(text: str) -> set[str]:
    """The references in a text: tokens of five characters or more that do not look like ordinary words.

    A token is a reference if it contains one of `_ . / : -`, a digit, or a capital after its first character.
    """
    # Most words recur, and most are ordinary: one of each of the others is searched.
    words = set(text.encode("ascii", "replace").translate(_BETWEEN_TOKENS).split())
    others = [word for word in words if not (word.isalpha() and word[1:].islower())]
    tokens = _TOKEN.findall(b" ".join(others).decode())
    return {token for token in tokens if len(token) >= REFERENCE_LENGTH and _DISTINCTIVE.search(token)}


def named_text(transcript: Transcript, found: Object) -> str:
    """The text of an object in which its references are. The id of a call was made up by the provider, and is not
    one."""
    entry = transcript.entries[found.position]
    if found.slot == WHOLE and entry.call_ids:
        blocks = (Object(found.position, slot) for slot in range(len(entry.blocks)))
        return "\n".join(named_text(transcript, block) for block in blocks)
    if found.slot == WHOLE:
        return transcript.text(entry)
    block = entry.blocks[found.slot]
    text = transcript.block_text(entry, block)
    if block.type != BlockType.TOOL_CALL:
        return text
    call = text.split(" ", 2)[-1]
    # As JSON, a name at the beginning of a line follows an n: it is read as recorded, and decoded.
    return "\n".join([call, *decoded(call.partition(" ")[2])]) if "\\" in call else call


def decoded(arguments: str, *, with_names: bool = True) -> Iterator[str]:
    """The texts among a call's arguments, with the names of the arguments; the arguments as they are if they are not
    JSON."""
    try:
        waiting: list[Any] = [json.loads(arguments)]
    except (ValueError, RecursionError):
        yield arguments
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value if with_names else ()
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
        elif isinstance(value, str):
            yield value
