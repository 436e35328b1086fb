"""PURE: the parts of an entry that a model receives and that are not text: images, documents, and content that only its
provider can read.

Estimates are in UTF-16 units, as for text. An image is estimated as by the agents, and so is a page of a document; for
encrypted content, the length in Base64 gives the estimate. The size of an image is read from the first bytes of its
file (PNG, JPEG, GIF and WebP). Nothing is decoded, and recorded data is not trusted: a damaged file has no size, or a
wrong one.

The tokens that a provider counts for an image depend on its size (`image_tokens`), by the formulas that providers
publish (their guides to images, September 2026):

| models                         | tokens                                    | it is made smaller until it has at most |
|--------------------------------|-------------------------------------------|-----------------------------------------|
| Claude 4.7 and newer           | squares of 28 pixels that cover it        | sides of 2,576 pixels, and 4,784 tokens |
| other Claudes                  | the same                                  | sides of 1,568 pixels, and 1,568 tokens |
| GPT 5.4 and newer              | squares of 32 pixels that cover it, × 1.2 | 2,500 squares                           |
| GPT 5.2 and 5.3, smaller ones  | the same, × 1.2 to 2.46                   | 1,536 squares                           |
| GPT 4o to 5.1, o1, o3          | a base, and more for each square of 512   | sides of 2,048 and 768 pixels           |

Worked example, for an image of 3,840 × 2,160 pixels: Claude Opus 5 sees it as 2,576 × 1,449, which 92 × 52 = 4,784
squares cover. For other models, the agents' estimate is used.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

HEAD_CHARACTERS: Final = 1 << 18
"""The number of Base64 characters read of a JPEG, a multiple of four: a preview may precede its size."""
_FEW_CHARACTERS: Final = 64
"""The number of Base64 characters read of other formats."""
_MOST_PIXELS: Final = 1 << 16
"""The maximum side of an image, in pixels, that any model accepts."""
_PNG: Final = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_GIFS: Final = (b"GIF87a", b"GIF89a")
_JPEG: Final = b"\xff\xd8"
_NO_FRAMES: Final = frozenset({0xC4, 0xC8, 0xCC})
"""The JPEG markers from 0xC0 to 0xCF that begin no frame."""
_ALONE: Final = frozenset({0x01, *range(0xD0, 0xD8)})
"""The JPEG markers without a length."""
_DATA_MARK: Final = ";base64,"
_LONGEST_MARK: Final = 200
"""The number of characters of a data URL within which its data must begin."""


class ImageSize(NamedTuple):
    """The width and height of an image in pixels."""

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


IMAGE: Final = "[image]"
"""The text that replaces an image."""
IMAGE_UNITS: Final = 4_800
PAGE_BYTES: Final = 100_000
"""The number of bytes of a document that are estimated like one image: about a page."""


class Opaque(msgspec.Struct, frozen=True, gc=False):
    """A part of an entry that is not text."""

    units: int
    """Its estimate in UTF-16 units."""
    block: int | None = None
    """The index of its block; None if the content is not an array."""
    label: str = ""
    """The line that replaces it in the texts of the entry."""
    size: ImageSize | None = None
    """The size of an image; None if it is not found."""

    @staticmethod
    def image(base64: str, block: int | None = None, label: str = IMAGE) -> Opaque:
        """An image, given as Base64 or as a data URL."""
        return Opaque(IMAGE_UNITS, block, label, size_in_base64(base64))

    @staticmethod
    def encrypted(base64: str, block: int | None = None, label: str = "") -> Opaque:
        """Content that only a provider can read."""
        return Opaque(len(base64) * 3 // 4, block, label)


def bytes_of(base64: str) -> int:
    """The length in bytes of Base64 data, decoded."""
    return max(0, len(base64) * 3 // 4 - base64[-2:].count("="))


def document_units(base64: str) -> int:
    """The estimate of a document."""
    return (1 + bytes_of(base64) // PAGE_BYTES) * IMAGE_UNITS


_CLAUDE: Final = re.compile(r"claude\D*(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_GPT: Final = re.compile(r"(?:^|/)(?:gpt-|(?=o\d|codex))(\S*)")
_STEPS: Final = 60
"""The number of bisection steps to find a scale."""


class _Squares(NamedTuple):
    """A model that divides images into squares, each of which costs a number of tokens."""

    side: int
    most: int
    """The maximum number of squares."""
    longest: int = 1 << 16
    """The maximum length of the longer side, in pixels."""
    tokens: float = 1.0


class _Tiles(NamedTuple):
    """A model that sees squares of 512 pixels."""

    base: int
    each: int


_NEW_CLAUDE: Final = _Squares(28, 4_784, 2_576)
_OLD_CLAUDE: Final = _Squares(28, 1_568, 1_568)
_FIRST_NEW_CLAUDE: Final = (4, 7)
_BY_NAME: Final[tuple[tuple[str, _Squares | _Tiles], ...]] = (
    ("4o-mini", _Tiles(2_833, 5_667)),
    ("4.1-mini", _Squares(32, 1_536, tokens=1.62)),
    ("4.1-nano", _Squares(32, 1_536, tokens=2.46)),
    ("4", _Tiles(85, 170)),
    ("5-mini", _Squares(32, 1_536, tokens=1.2)),
    ("5-nano", _Squares(32, 1_536, tokens=1.5)),
    ("5.2", _Squares(32, 1_536, tokens=1.2)),
    ("5.3", _Squares(32, 1_536, tokens=1.2)),
    ("5.1", _Tiles(70, 140)),
    ("5.", _Squares(32, 2_500, tokens=1.2)),
    ("5", _Tiles(70, 140)),
    ("o4-mini", _Squares(32, 1_536, tokens=1.72)),
    ("codex-mini", _Squares(32, 1_536, tokens=1.72)),
    ("o", _Tiles(75, 150)),
    ("", _Squares(32, 2_500, tokens=1.2)),
)
"""OpenAI's models by the beginning of their name after `gpt-`; the first match counts."""


def image_tokens(model_id: str, size: ImageSize) -> int | None:
    """The tokens of an image of this size for a model; None if the formula is not known."""
    model = _model(model_id.lower())
    if model is None:
        return None
    if isinstance(model, _Tiles):
        fitted = _scaled(size, min(1.0, 2_048 / max(size)))
        fitted = _scaled(fitted, min(1.0, 768 / min(fitted)))
        return model.base + model.each * _squares(fitted, 512)
    return math.ceil(model.tokens * _squares(_seen(size, model), model.side))


def _model(model_id: str) -> _Squares | _Tiles | None:
    claude = _CLAUDE.search(model_id)
    if claude is not None or "claude" in model_id:
        version = tuple(int(part or 0) for part in claude.groups()) if claude is not None else ()
        return _NEW_CLAUDE if version >= _FIRST_NEW_CLAUDE else _OLD_CLAUDE
    gpt = _GPT.search(model_id)
    if gpt is None:
        return None
    return next(model for beginning, model in _BY_NAME if gpt[1].startswith(beginning))


def _seen(size: ImageSize, model: _Squares) -> tuple[float, float]:
    """The size to which a model scales an image down, with the same proportions."""
    high = min(1.0, model.longest / max(size))
    if _squares(_scaled(size, high), model.side) <= model.most:
        return _scaled(size, high)
    low = 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _squares(_scaled(size, middle), model.side) <= model.most:
            low = middle
        else:
            high = middle
    return _scaled(size, low)


def _scaled(size: tuple[float, float], scale: float) -> tuple[float, float]:
    return size[0] * scale, size[1] * scale


def _squares(size: tuple[float, float], side: int) -> int:
    """The number of squares that cover an image. Rounding errors of a side do not add a square."""
    return math.prod(max(1, math.ceil(round(pixels, 6) / side)) for pixels in size)
