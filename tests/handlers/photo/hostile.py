"""Malicious files by name, and the expected outcome of each."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Final

from tests.handlers.photo import images

PAYLOAD: Final = b"<script>alert(1)</script>"


def _small() -> images.Pixels:
    return images.quarters()


def _png(side: int, bits: int, colour: int) -> bytes:
    """A PNG of zeros; it holds the first rows, the header alone decides."""
    row = bytes(1 + side * bits // 8)
    header = struct.pack(">IIBBBBB", side, side, 1 if bits == 1 else 8, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(row * 500)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(images.png_chunk(*each) for each in chunks)


def _tiny_webp() -> bytes:
    """34 bytes that claim 16383 × 16383 pixels of one colour."""
    bits = 16382 | 16382 << 14
    content = b"\x2f" + struct.pack("<I", bits) + bytes.fromhex("8888080000")
    chunk = b"VP8L" + struct.pack("<I", len(content)) + content
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def _polyglot() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("page.html", PAYLOAD)
    return images.jpeg(_small()) + archive.getvalue()


def _apng() -> bytes:
    return images.with_png_chunk(images.png(_small()), b"acTL", struct.pack(">II", 200, 0))


def _large_profile() -> bytes:
    profile = b"icc\0\0" + zlib.compress(bytes(60 << 20), 9)
    return images.with_png_chunk(images.png(_small()), b"iCCP", profile)


def _junk_profile() -> bytes:
    data = images.jpeg(_small())
    for number in range(80, 0, -1):
        head = b"ICC_PROFILE\0" + bytes([number, 80])
        data = images.with_segment(data, 0xE2, head + bytes(range(256)) * 250)
    return data


def _many_segments(count: int) -> bytes:
    segment = b"Exif\0\0" + b"MM\0*" + b"\xff\xda" * 100
    packed = struct.pack(">BBH", 0xFF, 0xE1, len(segment) + 2) + segment
    data = images.jpeg(_small())
    return data[:2] + packed * count + data[2:]


def _late_header() -> bytes:
    """A frame header after a megabyte of comments."""
    data = images.resized_header(images.jpeg(_small()), 60_000, 60_000)
    comment = struct.pack(">BBH", 0xFF, 0xFE, 65535) + bytes(65533)
    return data[:2] + comment * 20 + data[2:]


REFUSED: Final[dict[str, tuple[Callable[[], bytes], str]]] = {
    "png 65000 x 65000, 1 bit": (lambda: _png(65_000, 1, 0), "VALIDATION_FAILED"),
    "png 20000 x 20000": (lambda: _png(20_000, 24, 2), "VALIDATION_FAILED"),
    "webp 16383 x 16383 in 34 bytes": (_tiny_webp, "VALIDATION_FAILED"),
    "jpeg patched to 65500 x 65500": (
        lambda: images.resized_header(images.jpeg(_small()), 65_500, 65_500),
        "VALIDATION_FAILED",
    ),
    "progressive jpeg patched to 20000 x 20000": (
        lambda: images.resized_header(images.jpeg(_small(), interlace=True), 20_000, 20_000),
        "VALIDATION_FAILED",
    ),
    "jpeg of 0 x 0": (
        lambda: images.resized_header(images.jpeg(_small()), 0, 0),
        "VALIDATION_FAILED",
    ),
    "jpeg with its header behind a megabyte": (_late_header, "VALIDATION_FAILED"),
    "progressive jpeg, 880 scans, 7000 x 7000": (
        lambda: images.many_scans(7000, 880),
        "VALIDATION_FAILED",
    ),
    "svg": (
        lambda: b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>',
        "VALIDATION_FAILED",
    ),
    "pdf": (lambda: b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n", "VALIDATION_FAILED"),
    "text": (lambda: b"a photo, believe me", "VALIDATION_FAILED"),
    "empty": (lambda: b"", "VALIDATION_FAILED"),
    "one byte": (lambda: b"\xff", "VALIDATION_FAILED"),
    "magic bytes alone": (lambda: b"\xff\xd8\xff\xe0", "VALIDATION_FAILED"),
    "half a jpeg": (lambda: _half(images.jpeg(images.photograph())), "DECODE_FAILED"),
    "half a progressive jpeg": (
        lambda: _half(images.jpeg(images.photograph(), interlace=True)),
        "DECODE_FAILED",
    ),
    "half a png": (lambda: _half(images.png(images.photograph())), "DECODE_FAILED"),
    "half a webp": (lambda: _half(images.webp(images.photograph())), "DECODE_FAILED"),
    "gif": (lambda: images.animated(_small(), "gif"), "VALIDATION_FAILED"),
    "tiff": (lambda: images.image(_small()).tiffsave_buffer(), "VALIDATION_FAILED"),
    "animated webp": (lambda: images.animated(_small(), "webp"), "VALIDATION_FAILED"),
    "animated png": (_apng, "VALIDATION_FAILED"),
    "jpeg with 20000 segments": (lambda: _many_segments(20_000), "VALIDATION_FAILED"),
    "larger than allowed": (
        lambda: images.jpeg(_small()) + bytes(10 << 20),
        "VALIDATION_FAILED",
    ),
}
"""Refused: how it is made, and with which code."""

HARMLESS: Final[dict[str, Callable[[], bytes]]] = {
    "jpeg that is also a zip": _polyglot,
    "jpeg with a page in a comment": lambda: images.with_segment(
        images.jpeg(_small()), 0xFE, PAYLOAD
    ),
    "png with a profile of 60 MB": _large_profile,
    "jpeg with a junk profile of 5 MB": _junk_profile,
    "jpeg patched to 7000 x 7000": lambda: images.resized_header(images.jpeg(_small()), 7000, 7000),
    "jpeg with 200 exif segments": lambda: _many_segments(200),
}
"""Accepted, and the malicious content is not in the output."""


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]
