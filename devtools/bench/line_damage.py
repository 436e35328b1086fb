"""Damaged sessions of any agent: lines that are torn or moved, or have values that no agent writes."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from . import damage

DEEP: Final = 100_000
"""A depth of nesting that exceeds the limit of every reader."""
HOSTILE: Final[Sequence[Any]] = (
    *(None, True, 0, -1, 1.5, 10**400, 2**63, "", "\ud800", "\0", "x" * 300, "../../etc/passwd"),
    *(
        [],
        [[]],
        [None],
        [7],
        ["text"],
        [{}],
        {},
        {"type": 7},
        {"type": "text"},
        {"type": "text", "text": None},
    ),
    *([{"type": "text", "text": ["x"]}], [{"type": "tool_use"}], [{"type": "tool_result", "content": [5]}]),
)
"""Values that replace those written by agents."""


def with_flipped_bits(lines: damage.Lines, chance: random.Random) -> damage.Lines:
    whole = bytearray(b"\n".join(lines))
    for _ in range(chance.randint(1, 8)):
        whole[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
    return bytes(whole).split(b"\n")


def without_lines(lines: damage.Lines, chance: random.Random) -> damage.Lines:
    start = chance.randrange(len(lines))
    return [*lines[:start], *lines[start + chance.randint(1, 3) :]] or lines[:1]


def with_swapped_lines(lines: damage.Lines, chance: random.Random) -> damage.Lines:
    first, second = chance.randrange(len(lines)), chance.randrange(len(lines))
    swapped = list(lines)
    swapped[first], swapped[second] = lines[second], lines[first]
    return swapped


def with_nested_line(lines: damage.Lines, chance: random.Random) -> damage.Lines:
    at = chance.randint(0, len(lines))
    nested = chance.choice((b"[" * DEEP + b"]" * DEEP, b'{"type":' * DEEP + b"1" + b"}" * DEEP))
    return [*lines[:at], nested, *lines[at:]]


def with_hostile_value(lines: damage.Lines, chance: random.Random) -> damage.Lines:
    return _with_value_at_random(lines, chance, lambda _: chance.choice(HOSTILE))


def with_value_of_another(lines: damage.Lines, chance: random.Random) -> damage.Lines:
    """The lines, with one value replaced by that of the same name from another line, or by a hostile one."""
    other = _object(chance.choice(lines))

    def replaced(name: object) -> Any:
        found = [place[key] for place, key in _places(other) if key == name]
        return chance.choice(found or HOSTILE)

    return _with_value_at_random(lines, chance, replaced)


def without_value(lines: damage.Lines, chance: random.Random) -> damage.Lines:
    at = chance.randrange(len(lines))
    data = _object(lines[at])
    places = _places(data)
    if not places:
        return lines
    place, key = chance.choice(places)
    del place[key]
    return [*lines[:at], json.dumps(data).encode(), *lines[at + 1 :]]


DAMAGES: Final[Sequence[Callable[[damage.Lines, random.Random], damage.Lines]]] = (
    *(
        damage.truncated,
        damage.glued,
        damage.torn_and_glued,
        damage.filled_with_nul,
        damage.with_nul_line,
        damage.with_repeated_line,
    ),
    *(
        damage.with_invalid_utf8,
        damage.with_byte_order_mark,
        damage.with_carriage_returns,
        damage.with_blank_line,
        damage.with_value,
        damage.with_garbage,
    ),
    *(with_flipped_bits, without_lines, with_swapped_lines, with_nested_line),
    *(with_hostile_value, with_value_of_another, without_value) * 5,
)
"""The kinds of damage. Wrong values are chosen more often, because they can do harm in more ways."""


def damaged_lines(lines: Sequence[bytes], chance: random.Random) -> bytes:
    """The bytes of a session with these lines after one to six kinds of damage, with or without a trailing newline."""
    broken = list(lines)
    for _ in range(chance.randint(1, 6)):
        broken = chance.choice(DAMAGES)(broken, chance) or [b""]
        if broken == [b""]:
            break
    return b"\n".join(broken) + chance.choice((b"\n", b"\n", b""))


def _with_value_at_random(
    lines: damage.Lines, chance: random.Random, value_for: Callable[[object], Any]
) -> damage.Lines:
    at = chance.randrange(len(lines))
    data = _object(lines[at])
    places = _places(data)
    if not places:
        return lines
    place, key = chance.choice(places)
    place[key] = value_for(key)
    return [*lines[:at], json.dumps(data).encode(), *lines[at + 1 :]]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place below a value that has a value: the object or list, and the name or index in it."""
    found: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        place = pending.pop()
        keys = place.keys() if isinstance(place, dict) else range(len(place)) if isinstance(place, list) else ()
        found += [(place, key) for key in keys]
        pending += [place[key] for key in keys]
    return found


def _object(line: bytes) -> Any:
    """The value of a line; nothing if it has none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return {}
