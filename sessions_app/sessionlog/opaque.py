"""PURE: what a model receives of an entry that is not text: images, documents, and what only its provider can read.

Its estimate is in UTF-16 units, as that of a text. An image has that of the agents, and so has a page of a document; of
what is encrypted, Base64 gives the length. What a provider counts for an image depends on its size: see `image_tokens`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .image_size import ImageSize, size_in_base64

IMAGE: Final = "[image]"
"""Stands for an image in a text."""
IMAGE_UNITS: Final = 4_800
PAGE_BYTES: Final = 100_000
"""The bytes of a document that are estimated like an image: about a page."""


class Opaque(msgspec.Struct, frozen=True, gc=False):
    """One such part of an entry."""

    units: int
    """Its estimate."""
    block: int | None = None
    """The index of the block that it is, or is in; None if the content is not an array."""
    label: str = ""
    """The line that stands for it in the texts of the entry."""
    size: ImageSize | None = None
    """That of an image, if it is found."""

    @staticmethod
    def image(base64: str, block: int | None = None, label: str = IMAGE) -> Opaque:
        """An image, given as Base64 or as a data URL."""
        return Opaque(IMAGE_UNITS, block, label, size_in_base64(base64))

    @staticmethod
    def encrypted(base64: str, block: int | None = None, label: str = "") -> Opaque:
        """What only a provider can read."""
        return Opaque(len(base64) * 3 // 4, block, label)


def bytes_of(base64: str) -> int:
    """The length of what is encoded as Base64."""
    return max(0, len(base64) * 3 // 4 - base64[-2:].count("="))


def document_units(base64: str) -> int:
    """The estimate of a document."""
    return (1 + bytes_of(base64) // PAGE_BYTES) * IMAGE_UNITS
