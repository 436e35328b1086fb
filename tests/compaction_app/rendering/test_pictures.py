"""Pictures are what their bytes are, with a size that can be shown."""

import struct
import zlib
from base64 import b64encode
from typing import Any

import pytest

from compaction_app.rendering.pictures import (
    BYTES,
    LEVELS,
    PICTURES,
    PIXELS,
    SIDE,
    picture_of,
    picture_of_text,
    pictures_in,
)


def png(width: int, height: int) -> bytes:
    """A PNG file with black pixels; of a large one only the beginning."""
    is_whole = width * height < 10_000
    rows = zlib.compress(b"".join(b"\0" + bytes(width) for _ in range(height))) if is_whole else b""

    def chunk(name: bytes, content: bytes) -> bytes:
        body = name + content
        return len(content).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def jpeg(width: int, height: int) -> bytes:
    frame = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + bytes(10)
    return b"\xff\xd8\xff\xe0\x00\x10JFIF\0" + bytes(9) + b"\xff\xc4\x00\x04\0\0" + frame


def webp(kind: bytes, size: bytes) -> bytes:
    return b"RIFF\x40\0\0\0WEBP" + kind + b"\x20\0\0\0" + size + bytes(20)


LOSSLESS = webp(b"VP8L", b"\x2f" + ((30 - 1) | (20 - 1) << 14).to_bytes(4, "little"))
LOSSY = webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 30, 20))
EXTENDED = webp(b"VP8X", b"\0\0\0\0" + (29).to_bytes(3, "little") + (19).to_bytes(3, "little"))


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (png(30, 20), "image/png"),
        (jpeg(30, 20), "image/jpeg"),
        (b"GIF89a" + struct.pack("<HH", 30, 20) + bytes(3), "image/gif"),
        (LOSSLESS, "image/webp"),
        (LOSSY, "image/webp"),
        (EXTENDED, "image/webp"),
    ],
    ids=["png", "jpeg", "gif", "lossless", "lossy", "extended"],
)
def test_the_bytes_tell_the_type_and_the_size(data, media_type):
    assert picture_of(data) == (media_type, 30, 20, data)
    for end in range(24):
        assert picture_of(data[:end]) is None or end >= 10


NO_PICTURES = {
    "empty": b"",
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
    "html": b"<html><script>alert(1)</script>",
    "pdf": b"%PDF-1.7",
    "png with markup": b"\x89PNG\r\n\x1a\n<script>alert(1)</script>",
    "jpeg with markup": b"\xff\xd8\xff\xe0<script>alert(1)</script>" + b"\xff\xc2" * 100,
    "jpeg in a circle": b"\xff\xd8\xff\xe0\0\0" * 100,
    "wave": b"RIFF\0\0\0\0WAVE" + bytes(40),
    "webp": webp(b"ICCP", bytes(20)),
}


@pytest.mark.parametrize("name", NO_PICTURES)
def test_anything_else_is_no_picture(name):
    assert picture_of(NO_PICTURES[name]) is None


def test_a_size_that_no_browser_should_unfold_is_not_shown():
    high = PIXELS // 5_000
    shown = {(0, 10): False, (10, 0): False, (SIDE, 1): True, (SIDE + 1, 1): False, (1, SIDE + 1): False}
    shown |= {(high, 5_000): True, (high, 5_001): False}
    assert {size: picture_of(png(*size)) is not None for size in shown} == shown


def base64_of(data: bytes) -> str:
    return b64encode(data).decode()


def test_a_picture_is_recorded_as_base64_alone_or_as_a_url_of_any_type():
    recorded = base64_of(png(3, 2))
    for before in ("", "data:image/png;base64,", "data:image/webp;base64,"):
        found = picture_of_text(before + recorded)
        assert found is not None, before
        assert (found.media_type, found.width, found.height, found.data) == ("image/png", 3, 2, png(3, 2))


NO_TEXTS = {
    "empty": "",
    "label": "[image]",
    "start": "iVBORw0KGgo=",
    "broken": "iVBORw0KGgo! not base64",
    "html": f"data:text/html;base64,{base64_of(png(3, 2))}",
    "svg": f"data:image/svg+xml;base64,{base64_of(b'<svg/>')}",
    "long": base64_of(png(3, 2)) + "A" * (BYTES * 4 // 3),
    "letters": "/9j/é",
}


@pytest.mark.parametrize("name", NO_TEXTS)
def test_other_texts_are_no_pictures(name):
    assert picture_of_text(NO_TEXTS[name]) is None


def test_pictures_are_found_in_their_order_up_to_a_depth_and_a_number():
    texts = [base64_of(png(width, 1)) for width in (1, 2, 3)]
    message = {"content": [{"a": texts[0]}, "words", [{"source": {"data": texts[1]}}]], "b": texts[2]}
    assert [picture.width for picture in pictures_in(message)] == [1, 2, 3]
    deep: Any = texts[0]
    for _ in range(LEVELS + 1):
        deep = [deep]
    assert not list(pictures_in(deep))
    assert (len(list(pictures_in(deep[0]))), len(list(pictures_in(texts * PICTURES)))) == (1, PICTURES)
