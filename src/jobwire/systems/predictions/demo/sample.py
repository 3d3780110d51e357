"""A small picture to begin with, drawn without any library: a sky, a sun and two hills."""

import math
import struct
import zlib
from typing import Final

_WIDTH: Final = 480
_HEIGHT: Final = 320


def sample_photo() -> bytes:
    """A PNG of 480 by 320 pixels."""
    rows = bytearray()
    for y in range(_HEIGHT):
        rows.append(0)
        for x in range(_WIDTH):
            rows += bytes(_colour(x, y))
    head = struct.pack(">IIBBBBB", _WIDTH, _HEIGHT, 8, 2, 0, 0, 0)
    parts = _chunk(b"IHDR", head), _chunk(b"IDAT", zlib.compress(rows, 6)), _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _colour(x: int, y: int) -> tuple[int, int, int]:
    near = 230 + 26 * math.sin(x / 60 + 2)
    far = 180 + 34 * math.sin(x / 85)
    if y > near:
        return 46, 110 + (y - int(near)) // 3, 60
    if y > far:
        return 96, 150, 120
    if (x - 350) ** 2 + (y - 80) ** 2 < 42**2:
        return 255, 222, 130
    return 90 + y // 2, 150 + y // 3, 225


def _chunk(kind: bytes, data: bytes) -> bytes:
    crc = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + crc
