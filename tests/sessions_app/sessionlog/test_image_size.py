"""The size of an image is read from its first bytes, whatever they are; providers count its tokens by it."""

import base64

import pytest
from hypothesis import given, strategies as st

from sessions_app.sessionlog.opaque import ImageSize, image_size, image_tokens, size_in_base64
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


NOTHING = (b"", b"hi", png(0, 5), png(5, 1 << 20), jpeg(segment(0xE1, b"")), jpeg(b"\xff" * 9))


@pytest.mark.parametrize("head", [*NOTHING, b"RIFF\0\0\0\0WEBP" + b"." * 30])
def test_what_has_no_size(head):
    assert image_size(head) is None


@examples(60)
@given(st.binary(max_size=60) | st.binary(max_size=40).map(jpeg), st.text(max_size=40))
def test_anything_is_read(head, text):
    image_size(head)
    size_in_base64(text)


SCREEN, PAGE = (3840, 2160), (1075, 1520)
COUNTED = {
    "claude-opus-4-7": {(1000, 1000): 1296, (1512, 982): 1944, SCREEN: 4784, PAGE: 2145},
    "us.anthropic.claude-opus-5-v1:0": {SCREEN: 4784, (28, 1): 1},
    "claude-sonnet-4-5-20250929": {(1000, 1000): 1296, SCREEN: 1560, PAGE: 1551},
    "claude-opus-4-20250514": {SCREEN: 1560},
    "anthropic/claude-3.7-sonnet": {SCREEN: 1560, (200, 200): 64},
    "claude": {(1, 1): 1},
    "gpt-5.6": {(1024, 1024): 1229, (1920, 1280): 2880},
    "openai/gpt-5.3-codex": {(640, 480): 360},
    "gpt-4.1-mini": {(1024, 1024): 1659},
    "gpt-4o-2024-08-06": {(1024, 1024): 765, (2048, 4096): 1105, (10, 10): 255},
    "gpt-5-2025-08-07": {(1024, 1024): 630},
    "o3": {(1024, 1024): 675},
    "gemini-3-pro": {(100, 100): None},
    "local": {(100, 100): None},
}


@pytest.mark.parametrize("model", COUNTED)
def test_the_tokens_of_an_image_are_those_that_the_provider_counts(model):
    expected = COUNTED[model]
    assert {size: image_tokens(model, ImageSize(*size)) for size in expected} == expected


@pytest.mark.parametrize("model", ["claude-opus-5", "claude-sonnet-4-5", "gpt-5.4", "gpt-4o"])
def test_no_image_costs_more_than_a_model_takes(model):
    most = {"claude-opus-5": 4784, "claude-sonnet-4-5": 1568, "gpt-5.4": 3000, "gpt-4o": 85 + 170 * 8}[model]
    sizes = [(side, other) for side in (1, 27, 500, 5000, 60_000) for other in (1, 999, 60_000)]
    assert all(1 <= (image_tokens(model, ImageSize(*size)) or 0) <= most for size in sizes)
