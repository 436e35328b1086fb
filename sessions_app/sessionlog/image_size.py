"""PURE: the width and height of an image, from the first bytes of its file: PNG, JPEG, GIF and WebP.

Nothing is decoded, and what is recorded is not trusted: a damaged file has no size, or a wrong one.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from typing import Final, NamedTuple

HEAD_CHARACTERS: Final = 1 << 18
"""How much of an image in Base64 is looked at, a multiple of four: a JPEG may have a preview before its size."""
_FEW_CHARACTERS: Final = 64
"""The same for the other formats."""
_MOST_PIXELS: Final = 1 << 16
"""No side of an image that a model takes is longer."""
_PNG: Final = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_GIFS: Final = (b"GIF87a", b"GIF89a")
_JPEG: Final = b"\xff\xd8"
_NO_FRAMES: Final = frozenset({0xC4, 0xC8, 0xCC})
"""The JPEG markers from 0xC0 to 0xCF that begin no frame."""
_ALONE: Final = frozenset({0x01, *range(0xD0, 0xD8)})
"""The JPEG markers without a length."""
_DATA_MARK: Final = ";base64,"
_LONGEST_MARK: Final = 200
"""The characters of a data URL within which its data begins."""


class ImageSize(NamedTuple):
    """Pixels."""

    width: int
    height: int


def size_in_base64(text: str) -> ImageSize | None:
    """The size of an image, given as Base64 or as a data URL; None if it is neither, or its size is not found."""
    mark = text.find(_DATA_MARK, 0, _LONGEST_MARK)
    start = mark + len(_DATA_MARK) if mark >= 0 else 0
    try:
        head = binascii.a2b_base64(text[start : start + _FEW_CHARACTERS])
        if head.startswith(_JPEG):
            head = binascii.a2b_base64(text[start : start + HEAD_CHARACTERS])
    except ValueError:
        return None
    return image_size(head)


def image_size(head: bytes) -> ImageSize | None:
    """The size of the image with these first bytes; None if it is not found."""
    found = _size(head)
    return found if found is not None and min(found) > 0 and max(found) < _MOST_PIXELS else None


def _size(head: bytes) -> ImageSize | None:
    if head.startswith(_PNG) and len(head) >= 24:
        return ImageSize(int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big"))
    if head.startswith(_GIFS) and len(head) >= 10:
        return ImageSize(int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little"))
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        return _webp_size(head)
    return next(_jpeg_sizes(head), None) if head.startswith(_JPEG) else None


def _webp_size(head: bytes) -> ImageSize | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return ImageSize(1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little"))
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return ImageSize(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    if kind == b"VP8 ":
        width, height = int.from_bytes(head[26:28], "little"), int.from_bytes(head[28:30], "little")
        return ImageSize(width & 0x3FFF, height & 0x3FFF)
    return None


def _jpeg_sizes(head: bytes) -> Iterator[ImageSize]:
    """The sizes of the frames in a JPEG: that of a preview inside another segment is not among them."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if marker == 0xFF or marker in _ALONE:
            at += 1 if marker == 0xFF else 2
            continue
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAMES:
            yield ImageSize(int.from_bytes(head[at + 7 : at + 9], "big"), int.from_bytes(head[at + 5 : at + 7], "big"))
        at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
