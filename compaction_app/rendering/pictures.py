"""PURE: pictures in recorded messages, recognised by their own first bytes, whatever type the session states.

PNG, JPEG, GIF and WebP cannot contain anything active; SVG can, and does not count as a picture here. Sizes are
limited: a small file may unfold to more pixels than a browser has memory for.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

BYTES: Final = 10_000_000
PIXELS: Final = 50_000_000
SIDE: Final = 16_384
PICTURES: Final = 12
"""The maximum number of pictures of one entry that are shown."""
LEVELS: Final = 20
"""The maximum depth in a message at which pictures are sought."""
_DATA_URL: Final = re.compile(r"data:image/[a-z]{3,5};base64,")
_BASE64_STARTS: Final = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
_FRAMES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""The markers of a JPEG that are followed by its size."""


class Picture(NamedTuple):
    """A picture with the type that its bytes show."""

    media_type: str
    width: int
    height: int
    data: bytes


def pictures_in(message: Any) -> Iterator[Picture]:
    """The first pictures in the values of a message, in their order."""
    found = (picture_of_text(text) for text in _texts(message, LEVELS))
    return islice((picture for picture in found if picture is not None), PICTURES)


def picture_of_text(text: str) -> Picture | None:
    """The picture that a text encodes as Base64, alone or as a data URL; None if it encodes no picture."""
    url = _DATA_URL.match(text[:40])
    start = url.end() if url else 0
    if not text.startswith(_BASE64_STARTS, start) or len(text) - start > BYTES * 4 // 3 + 4:
        return None
    try:
        return picture_of(b64decode(text[start:], validate=True))
    except (binascii.Error, ValueError):
        return None


def picture_of(data: bytes) -> Picture | None:
    """A picture of a known type with a size that can be shown; None for anything else."""
    for media_type, size_of in _SIZES.items():
        size = size_of(data)
        if size is None:
            continue
        width, height = size
        if 0 < width <= SIDE and 0 < height <= SIDE and width * height <= PIXELS:
            return Picture(media_type, width, height, data)
    return None


def _texts(value: Any, levels: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif levels and isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one, levels - 1)


def _png(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR") or len(data) < 24:
        return None
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def _gif(data: bytes) -> tuple[int, int] | None:
    if not data.startswith((b"GIF87a", b"GIF89a")) or len(data) < 10:
        return None
    return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")


def _jpeg(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(b"\xff\xd8\xff"):
        return None
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        if data[at + 1] in _FRAMES:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < 30:
        return None
    if data[12:16] == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if data[12:16] == b"VP8 ":
        sides = int.from_bytes(data[26:28], "little"), int.from_bytes(data[28:30], "little")
        return sides[0] & 0x3FFF, sides[1] & 0x3FFF
    return None


_SIZES: Final = {"image/png": _png, "image/jpeg": _jpeg, "image/gif": _gif, "image/webp": _webp}
