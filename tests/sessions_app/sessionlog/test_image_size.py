"""The size of an image is read from its first bytes, whatever they are."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.sessionlog.image_size import image_size, size_in_base64
from tests.budget import examples


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big")


def jpeg(*segments: bytes) -> bytes:
    return b"\xff\xd8" + b"".join(segments)


def segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + (2 + len(body)).to_bytes(2, "big") + body


FRAME = segment(0xC2, b"\x08" + (480).to_bytes(2, "big") + (640).to_bytes(2, "big") + b"\x03")
PREVIEW = segment(0xE1, b"Exif" + jpeg(segment(0xC0, b"\x08\x00\x10\x00\x20\x03")))
SIZES = {
    "PNG": (png(64, 48), (64, 48)),
    "GIF": (b"GIF89a" + (100).to_bytes(2, "little") + (80).to_bytes(2, "little"), (100, 80)),
    "JPEG": (jpeg(FRAME), (640, 480)),
    "JPEG with a preview, tables and padding": (jpeg(PREVIEW, segment(0xC4, b"t"), b"\xff", FRAME), (640, 480)),
    "WebP, lossy": (b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0...\x9d\x01\x2a\x80\x02\xe0\x01", (640, 480)),
    "WebP, lossless": (b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0/\x2b\xc1\x31\x00" + b"\0" * 5, (300, 200)),
    "WebP, extended": (b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0....\x7f\x02\0\xdf\x01\0", (640, 480)),
}


@pytest.mark.parametrize(("head", "size"), SIZES.values(), ids=SIZES)
def test_each_format(head, size):
    data = base64.b64encode(head + b"more").decode()
    assert image_size(head) == size_in_base64(data) == size_in_base64(f"data:image/x;base64,{data}") == size
    assert all(image_size(head[:end]) in (None, size) for end in range(len(head)))


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"hi",
        png(0, 5),
        png(5, 1 << 20),
        jpeg(segment(0xE1, b"")),
        jpeg(b"\xff" * 9),
        b"RIFF\0\0\0\0WEBP" + b"." * 30,
    ],
)
def test_what_has_no_size(head):
    assert image_size(head) is None


@examples(60)
@given(st.binary(max_size=60) | st.binary(max_size=40).map(jpeg), st.text(max_size=40))
def test_anything_is_read(head, text):
    image_size(head)
    size_in_base64(text)
