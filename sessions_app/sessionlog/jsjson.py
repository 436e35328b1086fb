"""JSON as the agents read and print it, strings as they count them, and the bytes of lines and of values inside them.

The agents are JavaScript programs, so JavaScript's rules apply: the length of a string is its number of UTF-16 code
units, every number is a double, and `JSON.stringify` determines how a tool call's arguments look. Token estimates
depend on all three (https://tc39.es/ecma262/#sec-json.stringify).

Unchanged parts of a recorded line keep their bytes: `members`, `items` and `splice` work on the bytes of JSON that a
parser has accepted. Only a newline ends a line. The last line of a file may lack its newline, because an agent may be
writing it at this moment: it is returned with `complete` False, and the next reading starts at its offset again.
"""

import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

_fast_decode: Final = msgspec.json.Decoder().decode
_fast_encode: Final = msgspec.json.Encoder().encode
_print_string: Final = json.JSONEncoder(ensure_ascii=False).encode

MAX_SAFE_INTEGER: Final = 2**53
MAX_DIGITS: Final = 310
"""The maximum length of a double before its decimal point, including the sign."""
_ARRAY_INDEX: Final = re.compile(r"(?:0|[1-9][0-9]{0,9})\Z")
# https://tc39.es/ecma262/#sec-white-space and line terminators
_WHITE_SPACE: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_LONE_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\ud[89a-f]")
"""A lone surrogate as `stringify` prints it."""


def parse(raw: bytes) -> Any:
    """The result of the agent's `JSON.parse` for these bytes.

    Invalid UTF-8 becomes U+FFFD, and lone surrogates are accepted, as in the agent.
    Raises ValueError, with a message, if the agent would throw.
    """
    try:
        return _fast_decode(raw)
    except (msgspec.DecodeError, ValueError):
        # The fast decoder refuses lone surrogates, huge numbers and invalid UTF-8; the agent does not.
        return _parse_leniently(raw)
    except RecursionError:
        raise ValueError("nested too deeply to be read") from None


def parse_well_formed(raw: bytes) -> Any:
    """The value in these bytes for a parser that is stricter than JavaScript's: it also refuses invalid UTF-8 and lone
    surrogates. Raises ValueError, with a message."""
    with suppress(msgspec.DecodeError, ValueError, RecursionError):
        return _fast_decode(raw)
    value = parse(raw)
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise ValueError("invalid UTF-8") from None
    if _LONE_ESCAPE.search(stringify(value)):
        raise ValueError("half of a surrogate pair")
    return value


def _parse_leniently(raw: bytes) -> Any:
    if raw.startswith(BOM_UTF8):
        raise ValueError("a byte order mark stands before it")
    try:
        return json.loads(
            raw.decode("utf-8", "replace"),
            # Python refuses integers of thousands of digits; for the agent they are infinite long before that.
            parse_int=lambda digits: int(digits) if len(digits) <= MAX_DIGITS else float(digits),
            parse_constant=refuse_constant,
        )
    except RecursionError:
        raise ValueError("nested too deeply to be read") from None


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and Infinity, which are not JSON; for a decoder."""
    raise ValueError(f"{name} is not JSON")


def utf16_length(text: str) -> int:
    """The length of a string in UTF-16 code units, as JavaScript's `length`."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf16_slice(text: str, start: int, end: int) -> str:
    """JavaScript's `text.slice(start, end)`, for 0 <= start: offsets count UTF-16 code units.

    Cutting through a surrogate pair leaves a lone surrogate, as in JavaScript.
    """
    if text.isascii():
        return text[start:end]
    units = text.encode("utf-16-le", "surrogatepass")
    return units[2 * start : 2 * max(start, end)].decode("utf-16-le", "surrogatepass")


def trim(text: str) -> str:
    """JavaScript's `text.trim()`, whose white space differs from Python's."""
    return text.strip(_WHITE_SPACE)


def trim_end(text: str) -> str:
    """JavaScript's `text.trimEnd()`."""
    return text.rstrip(_WHITE_SPACE)


def well_formed(text: str) -> str:
    """The string with every lone surrogate replaced by U+FFFD, as UTF-8 encoders do."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Two adjacent surrogates that were recorded separately form one character.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def to_string(value: object) -> str:
    """A JSON value as JavaScript's template literals convert it to text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float) or value is None:
        return stringify(value)
    if isinstance(value, list):
        return ",".join("" if item is None else to_string(item) for item in _flatten(value))
    return "[object Object]"


def _flatten(nested: list[Any]) -> Iterator[object]:
    """The items of a list and of the lists in it, in order; an empty list yields None."""
    pending: list[object] = [nested]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending.extend(reversed(value or [None]))
        else:
            yield value


def stringify(value: object) -> str:
    """The result of `JSON.stringify(value)` for a parsed JSON value of any depth."""
    if _prints_alike(value):
        with suppress(UnicodeEncodeError, RecursionError):
            return _fast_encode(value).decode()
    return _print(value, property_order, _quote)


def json_bytes(value: object) -> bytes:
    """As `stringify`, in UTF-8, as agents write it."""
    return stringify(value).encode()


def canonical(value: object) -> str:
    """One JSON text for equal values: keys sorted, no spaces, in ASCII, and numbers as `stringify` prints them."""
    if _prints_alike(value):
        with suppress(RecursionError):
            return json.dumps(value, sort_keys=True, separators=(",", ":"))
    return _print(value, sorted, json.dumps)


def _prints_alike(value: object) -> bool:
    """Whether every JSON printer gives the same text: no doubles, large integers or array-index keys."""
    pending = [value]
    while pending:
        one = pending.pop()
        kind = type(one)
        if kind is str or kind is bool or one is None:
            continue
        if isinstance(one, dict):
            for key, item in one.items():
                if "0" <= key[:1] <= "9":
                    return False
                if type(item) is not str:
                    pending.append(item)
        elif isinstance(one, list):
            pending.extend(one)
        elif not isinstance(one, int) or not -MAX_SAFE_INTEGER <= one <= MAX_SAFE_INTEGER:
            return False
    return True


def _print(value: object, ordered: Callable[[dict[str, object]], list[str]], quoted: Callable[[str], str]) -> str:
    parts: list[str] = []
    # What remains to be printed, the next item last: values, and ready-made punctuation.
    pending: list[object] = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, _Ready):
            parts.append(one.text)
        elif isinstance(one, list):
            parts.append("[")
            pending.append(_ENDS_LIST)
            for index in range(len(one) - 1, -1, -1):
                pending.append(one[index])
                if index:
                    pending.append(_SEPARATES)
        elif isinstance(one, dict):
            parts.append("{")
            pending.append(_ENDS_OBJECT)
            keys = ordered(one)
            for index in range(len(keys) - 1, -1, -1):
                pending.append(one[keys[index]])
                pending.append(_Ready(f"{',' if index else ''}{quoted(keys[index])}:"))
        else:
            parts.append(_print_scalar(one, quoted))
    return "".join(parts)


class _Ready(NamedTuple):
    text: str


_SEPARATES: Final = _Ready(",")
_ENDS_LIST: Final = _Ready("]")
_ENDS_OBJECT: Final = _Ready("}")


def _print_scalar(value: object, quoted: Callable[[str], str]) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int | float):
        return _print_number(value)
    raise TypeError(f"not a JSON value: {type(value).__name__}")


def property_order(keys: dict[str, object]) -> list[str]:
    """An object's keys in JavaScript's order: array indexes ascending, then the others as recorded."""
    indexes = [key for key in keys if _ARRAY_INDEX.match(key) and int(key) < 2**32 - 1]
    indexes.sort(key=int)
    if not indexes:
        return list(keys)
    first = set(indexes)
    return indexes + [key for key in keys if key not in first]


def _quote(text: str) -> str:
    quoted = _print_string(text)
    if quoted.isascii():
        return quoted
    if _LONE_SURROGATE.search(quoted):
        # Surrogate pairs that were recorded as two escapes are one character, and are not escaped.
        quoted = quoted.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        quoted = _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)
    return quoted


def _print_number(number: int | float) -> str:
    """`Number.prototype.toString` of the nearest double; null if that is not finite."""
    try:
        double = float(number)
    except OverflowError:
        return "null"
    if not math.isfinite(double):
        return "null"
    if double == 0:
        return "0"
    sign = "-" if double < 0 else ""
    mantissa, _, exponent = repr(abs(double)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    if fraction == "0":
        fraction = ""
    digits = (whole + fraction).lstrip("0")
    # The value is 0.digits times ten to the power of `point`.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if 0 < point <= 21:
        if len(digits) <= point:
            return sign + digits.ljust(point, "0")
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'+' if point > 0 else '-'}{abs(point - 1)}"


_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]:,]', re.DOTALL)
"""Strings and marks. Possessive: an image of 10 MB is one string, and to remember each of its bytes takes 1 GB."""
_BLANKS: Final = b" \t\r\n"


class Span(NamedTuple):
    """The position of a value: from `start` up to, but without, `end`."""

    start: int
    end: int

    def of(self, raw: bytes) -> bytes:
        return raw[self.start : self.end]


def members(raw: bytes, start: int = 0) -> dict[str, Span]:
    """The values of the object that begins at or after `start`, by key; of a repeated key the last one counts."""
    found: dict[str, Span] = {}
    for key, span in _parts(raw, start):
        name = parse(key)
        if isinstance(name, str):
            found[name] = span
    return found


def items(raw: bytes, start: int = 0) -> list[Span]:
    """The items of the array that begins at or after `start`."""
    return [span for _, span in _parts(raw, start)]


def first_object(raw: bytes) -> Span:
    """The position of the object or array with which bytes begin; empty if they begin with anything else or it does not
    end."""
    depth, start = 0, len(raw) - len(raw.lstrip(_BLANKS))
    if raw[start : start + 1] in (b"{", b"["):
        for token in _TOKEN.finditer(raw, start):
            mark = token.group()
            depth += (mark in (b"{", b"[")) - (mark in (b"}", b"]"))
            if not depth:
                return Span(start, token.end())
    return Span(start, start)


def splice(raw: bytes, changes: Iterable[tuple[Span, bytes]]) -> bytes:
    """The bytes with other bytes in place of these spans, which do not overlap."""
    pieces, at = [], 0
    for span, instead in sorted(changes):
        pieces += [raw[at : span.start], instead]
        at = span.end
    return b"".join([*pieces, raw[at:]])


def _parts(raw: bytes, start: int) -> Iterator[tuple[bytes, Span]]:
    """Each value of an object or array, with its key as recorded (empty in an array)."""
    depth, begin, key, text = 0, start, b"", b""
    for token in _TOKEN.finditer(raw, start):
        mark = token.group()
        if mark in (b"{", b"["):
            depth += 1
            if depth == 1:
                begin = token.end()
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                last = _trimmed(raw, begin, token.start())
                if last.start < last.end:
                    yield key, last
                return
        elif depth != 1:
            continue
        elif mark == b":":
            key, begin = text, token.end()
        elif mark == b",":
            yield key, _trimmed(raw, begin, token.start())
            begin = token.end()
        else:
            text = mark


def _trimmed(raw: bytes, start: int, end: int) -> Span:
    """The span without the blanks around its value."""
    value = raw[start:end]
    return Span(start + len(value) - len(value.lstrip(_BLANKS)), start + len(value.rstrip(_BLANKS)))


class Line(NamedTuple):
    """One line of a session file: its number from 1, its byte offset, and its bytes without the newline."""

    number: int
    offset: int
    raw: bytes
    complete: bool = True

    @property
    def end(self) -> int:
        """The offset of the byte after the line, including its newline."""
        return self.offset + len(self.raw) + self.complete


def split_lines(chunks: Iterable[bytes], *, offset: int = 0, number: int = 1) -> Iterator[Line]:
    """The lines of a file that is read in chunks, starting at a line's start at `offset`.

    Keeps one chunk and one line in memory, whatever the length of the file.
    """
    pieces: list[bytes] = []
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        if ended and pieces:
            pieces.append(ended[0])
            ended[0] = b"".join(pieces)
            pieces.clear()
        for raw in ended:
            yield Line(number, offset, raw)
            offset += len(raw) + 1
            number += 1
        if rest:
            pieces.append(rest)
    if pieces:
        yield Line(number, offset, b"".join(pieces), complete=False)
