"""The forms in which a provider may echo a key, found and hidden as far as this is cheap.

Texts are compared by their letters and digits only, without case: so `sk-1`, `S K 1` and `s.k.-.1` are the same, and
one search finds a form with any separators, line breaks and alphabet variants.

| form                       | for the key `sk-…`                     | its letters and digits begin with |
|----------------------------|----------------------------------------|-----------------------------------|
| as it is, spaced           | `s k - …`                              | `sk`                              |
| reversed                   | `…-ks`                                 | its last ones                     |
| percent-encoded            | `a%2Bb`, `%73%6B`                      | `a2bb`, `736b`                    |
| hexadecimal                | `736b`, `73:6B`                        | `736b`                            |
| escaped                    | `\\u0073`, `\\x73`, `&#x73;`, `0x73`     | `u0073`, `x73`, `0x73`            |
| decimal                    | `115, 107`, `&#115;`                   | `115107`                          |
| base64, also inside other  | three alignments, both alphabets       | what the key alone decides        |
| data                       |                                        |                                   |

Not found: pieces of a key, letters inserted between its own, a list of one-character strings, two encodings on top of
each other, ciphers, compression, and other encodings.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

SHORTEST: Final = 12
"""The minimum number of letters and digits of a key: fewer could be any text."""
GAP: Final = 16
"""Separators between two letters of a form."""
_HEAD: Final = 8
_SEPARATOR: Final = r"(?:\\[nrt]|[^A-Za-z0-9])"
"""In JSON text a line break is also a separator."""
_SEPARATORS: Final = re.compile(_SEPARATOR)
_LETTER: Final = re.compile(r"\\[nrt]|([A-Za-z0-9])")


class KeyForms:
    """The forms of one key."""

    def __init__(self, key: str) -> None:
        forms = map(_letters, _forms(key)) if len(_letters(key)) >= SHORTEST else ()
        self._forms = tuple(dict.fromkeys(forms))
        self._longest = max(map(len, self._forms), default=0)

    def hide(self, text: str, shown: str) -> str:
        """The text with each form of the key replaced by `shown`."""
        letters = _letters(text)
        for form in self._forms:
            if form in letters:
                # The pattern is compiled when it is needed, which is rare.
                between = f"{_SEPARATOR}{{0,{GAP}}}"
                text = re.sub(between.join(form), lambda _: shown, text, flags=re.IGNORECASE | re.ASCII)
        return text

    def held(self, text: str) -> int:
        """The number of characters at the end of a text that could be the beginning of a form."""
        letters, places = _last_letters(text, self._longest)
        size = max((_overlap(letters, form) for form in self._forms), default=0)
        return len(text) - places[-size] if size else 0


def _forms(key: str) -> Iterable[str]:
    data = key.encode()
    yield key
    yield key[::-1]
    yield quote(key, safe="")
    for written in ("{:02x}", "x{:02x}", "0x{:02x}", "u{:04x}", "{:d}"):
        yield "".join(map(written.format, data))
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        # A character that also depends on a neighbour of the key is not part of it.
        last = len(encoded) - bool((before + len(data)) % 3)
        yield encoded[-(-before * 8 // 6) : last]


def _letters(text: str) -> str:
    return _SEPARATORS.sub("", text).lower()


def _last_letters(text: str, most: int) -> tuple[str, list[int]]:
    """The last letters and digits of a text, at most `most` and without a wide gap, and the position of each."""
    start = max(0, len(text) - most * (2 * GAP + 1))
    letters: list[str] = []
    places: list[int] = []
    end = start
    for found in _LETTER.finditer(text, start):
        if found[1] is None:
            continue
        if found.start() - end > 2 * GAP:
            letters, places = [], []
        letters.append(found[1].lower())
        places.append(found.start())
        end = found.end()
    if len(text) - end > 2 * GAP:
        return "", []
    return "".join(letters[-most:]), places[-most:]


def _overlap(letters: str, form: str) -> int:
    """The number of last letters that are the beginning of a form, but not all of it."""
    head = form[:_HEAD]
    at = letters.find(head, max(0, len(letters) - len(form) + 1))
    while at >= 0:
        if form.startswith(letters[at:]):
            return len(letters) - at
        at = letters.find(head, at + 1)
    return next((size for size in range(min(_HEAD - 1, len(letters)), 0, -1) if form.startswith(letters[-size:])), 0)
