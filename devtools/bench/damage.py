"""Damaged sessions, and whether their repairs account for every byte."""

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from devtools.bench.sessions import generate, real_sessions
from sessions_app.agents.pi.agent import PI
from sessions_app.sessionlog.jsjson import parse, split_lines
from sessions_app.sessionlog.repair_pieces import Fate, RepairAccount, RepairChange
from sessions_app.sessionlog.session import Header

from .figures import Figure

Lines = list[bytes]

FILES: Final = 1_000
SEED: Final = 11
MOST_LINES: Final = 60
LONGEST: Final = 20_000
"""Lines of at least this many bytes are left out of the parts of sessions that are damaged."""
NEW_HEADER: Final = Header("00000000-0000-4000-8000-000000000000", 3, "", "2026-01-01T00:00:00.000Z", "")


def truncated(lines: Lines, chance: random.Random) -> Lines:
    whole = b"\n".join(lines)
    return whole[: chance.randrange(len(whole) + 1)].split(b"\n")


def glued(lines: Lines, chance: random.Random) -> Lines:
    at = chance.randrange(len(lines))
    return [*lines[:at], b"".join(lines[at : at + 2]), *lines[at + 2 :]]


def torn_and_glued(lines: Lines, chance: random.Random) -> Lines:
    at = chance.randrange(len(lines))
    kept = lines[at][: chance.randrange(len(lines[at]) + 1)]
    return [*lines[:at], kept + b"".join(lines[at + 1 : at + 2]), *lines[at + 2 :]]


def filled_with_nul(lines: Lines, chance: random.Random) -> Lines:
    whole = b"\n".join(lines)
    start = chance.randrange(len(whole) + 1)
    size = chance.choice((1, 40, 4096))
    return (whole[:start] + b"\0" * min(size, len(whole) - start) + whole[start + size :]).split(b"\n")


def with_nul_line(lines: Lines, chance: random.Random) -> Lines:
    return _inserted(lines, b"\0" * chance.choice((1, 512)), chance)


def with_repeated_line(lines: Lines, chance: random.Random) -> Lines:
    return _inserted(lines, chance.choice(lines), chance)


def with_repeated_id(lines: Lines, chance: random.Random) -> Lines:
    return _with_id_of_another(lines, "id", chance)


def with_wrong_parent(lines: Lines, chance: random.Random) -> Lines:
    return _with_id_of_another(lines, "parentId", chance)


def with_missing_parent(lines: Lines, chance: random.Random) -> Lines:
    return _with_field(lines, chance, parentId="00000bad")


def without_id(lines: Lines, chance: random.Random) -> Lines:
    return _with_field(lines, chance, id=chance.choice(("", None, 7, ["x"])))


def without_header(lines: Lines, chance: random.Random) -> Lines:
    del chance
    return lines[1:] or lines[:1]


def with_late_header(lines: Lines, chance: random.Random) -> Lines:
    return _inserted(lines[1:], lines[0], chance)


def with_second_header(lines: Lines, chance: random.Random) -> Lines:
    return _inserted(lines, lines[0], chance)


def with_invalid_utf8(lines: Lines, chance: random.Random) -> Lines:
    at = chance.randrange(len(lines))
    return [*lines[:at], re.sub(rb"[aeiou]", b"\xff", lines[at], count=2), *lines[at + 1 :]]


def with_byte_order_mark(lines: Lines, chance: random.Random) -> Lines:
    del chance
    return [b"\xef\xbb\xbf" + lines[0], *lines[1:]]


def with_carriage_returns(lines: Lines, chance: random.Random) -> Lines:
    del chance
    return [line + b"\r" if line else line for line in lines]


def with_blank_line(lines: Lines, chance: random.Random) -> Lines:
    return _inserted(lines, chance.choice((b"", b"  ", b"\t\r")), chance)


def with_value(lines: Lines, chance: random.Random) -> Lines:
    return _inserted(lines, chance.choice((b"5", b"null", b'"text"', b"[1,{}]", b"{}", b'{"a":{}}')), chance)


def with_garbage(lines: Lines, chance: random.Random) -> Lines:
    return _inserted(lines, chance.choice((b"{", b"}{", b'{"type":"message"', chance.randbytes(30))), chance)


def without_message(lines: Lines, chance: random.Random) -> Lines:
    return _with_field(lines, chance, message=chance.choice((None, "text", 1)))


def with_edit_without_replacement(lines: Lines, chance: random.Random) -> Lines:
    edit = {"type": "context_edit", "id": f"{chance.getrandbits(32):08x}", "parentId": None, "targetId": "x"}
    return _inserted(lines, json.dumps(edit).encode(), chance)


DAMAGES: Final[Sequence[Callable[[Lines, random.Random], Lines]]] = (
    truncated,
    glued,
    torn_and_glued,
    filled_with_nul,
    with_nul_line,
    with_repeated_line,
    with_repeated_id,
    with_wrong_parent,
    with_missing_parent,
    without_id,
    without_header,
    with_late_header,
    with_second_header,
    with_invalid_utf8,
    with_byte_order_mark,
    with_carriage_returns,
    with_blank_line,
    with_value,
    with_garbage,
    without_message,
    with_edit_without_replacement,
)


def damaged(lines: Sequence[bytes], chance: random.Random) -> bytes:
    """The bytes of a session with these lines after one to four kinds of damage, with or without a trailing newline."""
    broken = list(lines)
    for _ in range(chance.randint(1, 4)):
        broken = chance.choice(DAMAGES)(broken, chance)
    return b"\n".join(broken) + chance.choice((b"\n", b"\n", b""))


def unaccounted(original: bytes) -> str:
    """The fault in the repair of a session, in words; empty if there is none.

    Each byte of the original must be in one record of the copy, or lost; the account must list what was inserted and
    lost; and the copy must be free of damage that can be repaired.
    """
    pieces = list(PI.format.repair(lambda: split_lines([original]), NEW_HEADER))
    account = RepairAccount()
    for piece in pieces:
        account.add(piece)
    copy = b"".join(piece.raw for piece in pieces if piece.fate is not Fate.LOST)
    lost = b"".join(piece.raw for piece in pieces if piece.fate is Fate.LOST)
    if b"".join(piece.raw for piece in pieces if piece.fate is not Fate.INSERTED) != original:
        return "the kept and the lost bytes are not the original"
    if original_of(copy, lost, account.changes) != original:
        return "the listed changes do not lead back to the original"
    *records, rest = copy.split(b"\n")
    if rest or not all(isinstance(parse(record), dict) for record in records):
        return "a line of the copy is not a record"
    findings = PI.format.examine(split_lines([copy]), "the copy").findings
    return ", ".join(finding.kind for finding in findings if finding.is_repairable)


def original_of(copy: bytes, lost: bytes, changes: Sequence[RepairChange]) -> bytes:
    """The original, reconstructed from a copy, the lost bytes, and the list of changes."""
    original = bytearray()
    position = 0
    for change in changes:
        unchanged = change.offset - len(original)
        original += copy[position : position + unchanged]
        position += unchanged
        if change.fate is Fate.LOST:
            original += lost[change.at : change.at + change.length]
        elif copy.startswith(change.preview, position):
            position += change.length
    return bytes(original + copy[position:])


def damage() -> Iterator[Figure]:
    """Repairs of damaged sessions: how many lose track of a byte, or leave damage."""
    sessions = _sessions()
    chance = random.Random(SEED)  # noqa: S311  # a generator of test data
    faults = [unaccounted(damaged(_part(chance.choice(sessions), chance), chance)) for _ in range(FILES)]
    yield Figure(f"of {FILES:,} damaged sessions, those not accounted for", sum(map(bool, faults)), "files", 0)


def _sessions() -> list[Lines]:
    """The lines of real sessions, or of a generated one."""
    found = [path.read_bytes().splitlines() for path in real_sessions()]
    generated = [msgspec.json.encode(one) for one in generate(entries=400, entry_bytes=900, seed=SEED)]
    return found or [generated]


def _part(lines: Lines, chance: random.Random) -> Lines:
    """The header of a session, and some of its entries, without the longest."""
    start = chance.randrange(1, len(lines) - 1)
    entries = lines[start : start + chance.randint(1, MOST_LINES)]
    return [lines[0], *(line for line in entries if len(line) < LONGEST)]


def _inserted(lines: Lines, line: bytes, chance: random.Random) -> Lines:
    at = chance.randint(0, len(lines))
    return [*lines[:at], line, *lines[at:]]


def _with_id_of_another(lines: Lines, field: str, chance: random.Random) -> Lines:
    """The lines, one of them with another's id in a field."""
    data = _object(chance.choice(lines))
    return _with_field(lines, chance, **{field: data.get("id")})


def _with_field(lines: Lines, chance: random.Random, **fields: Any) -> Lines:
    at = chance.randrange(len(lines))
    data = _object(lines[at])
    changed = json.dumps({**data, **fields}).encode() if data else lines[at]
    return [*lines[:at], changed, *lines[at + 1 :]]


def _object(line: bytes) -> dict[str, Any]:
    """The object on a line; empty if there is none any more."""
    try:
        data = parse(line)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}
