"""Photographs from packages, and image files made of them."""

from __future__ import annotations

import struct
import zlib
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
vips: Final[Any] = import_module("pyvips")
vips._remove_log_handler()  # a warning runs no Python here either: jobwire/handlers/photo/vips.py

COLOURS: Final = {
    "red": (200, 40, 40),
    "green": (40, 170, 60),
    "blue": (50, 70, 190),
    "yellow": (220, 200, 60),
}


def package_file(package: str, path: str) -> Path:
    """A file inside a package of `packages.txt`, which is never imported."""
    spec = find_spec(package)
    assert spec is not None, f"{package} is not installed; run: make test"
    assert spec.origin is not None
    return Path(spec.origin).parent / path


@cache
def photograph(name: str = "astronaut.png") -> Pixels:
    """A portrait (one face), unless another photograph is named."""
    return vips.Image.new_from_file(str(package_file("skimage", f"data/{name}"))).numpy()


def group(width: int = 900, height: int = 600) -> Pixels:
    """Four faces of different sizes on a photograph without any."""
    backdrop = image(photograph("coffee.png")).thumbnail_image(width, height=height, size="force")
    faces = image(photograph()[20:240, 110:330])
    for left, top, size in ((30, 40, 220), (300, 30, 130), (520, 60, 80), (640, 300, 180)):
        backdrop = backdrop.insert(faces.thumbnail_image(size), left, top)
    return backdrop.numpy()


def image(pixels: Pixels) -> Any:
    """The pixels as an image of the library."""
    height, width, bands = pixels.shape
    made = vips.Image.new_from_memory(pixels.tobytes(), width, height, bands, "uchar")
    return made.copy(interpretation="srgb")


def jpeg(pixels: Pixels, **options: object) -> bytes:
    return image(pixels).jpegsave_buffer(**{"Q": 92, **options})


def png(pixels: Pixels, **options: object) -> bytes:
    return image(pixels).pngsave_buffer(**options)


def webp(pixels: Pixels, **options: object) -> bytes:
    return image(pixels).webpsave_buffer(**options)


def animated(pixels: Pixels, save: str) -> bytes:
    """Three frames as `webp` or `gif`."""
    frames = [image(np.roll(pixels, shift, axis=1)) for shift in (0, 40, 80)]
    joined = vips.Image.arrayjoin(frames, across=1).copy()
    joined.set_type(vips.GValue.gint_type, "page-height", pixels.shape[0])
    return getattr(joined, f"{save}save_buffer")()


def quarters(width: int = 160, height: int = 120) -> Pixels:
    """Four colours, each in its own quarter: red, green, blue, yellow."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[: height // 2, : width // 2] = COLOURS["red"]
    pixels[: height // 2, width // 2 :] = COLOURS["green"]
    pixels[height // 2 :, : width // 2] = COLOURS["blue"]
    pixels[height // 2 :, width // 2 :] = COLOURS["yellow"]
    return pixels


def read(file: Path | bytes) -> Pixels:
    """The pixels of a finished file."""
    data = file if isinstance(file, bytes) else file.read_bytes()
    return vips.Image.new_from_buffer(data, "").numpy()


def chunks(data: bytes) -> list[str]:
    """The chunks of a WebP file."""
    found: list[str] = []
    at = 12
    while at < len(data):
        found.append(data[at : at + 4].decode())
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + size + size % 2
    return found


def png_chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def with_png_chunk(data: bytes, kind: bytes, content: bytes) -> bytes:
    """A PNG with one more chunk behind its header."""
    return data[:33] + png_chunk(kind, content) + data[33:]


def with_segment(data: bytes, marker: int, content: bytes) -> bytes:
    """A JPEG with one more segment at its beginning."""
    return data[:2] + _segment((marker, content)) + data[2:]


def resized_header(data: bytes, width: int, height: int) -> bytes:
    """A JPEG that claims another size."""
    at = next(data.index(marker) for marker in (b"\xff\xc0", b"\xff\xc2") if marker in data)
    return data[: at + 5] + struct.pack(">HH", height, width) + data[at + 9 :]


def many_scans(side: int, scans: int) -> bytes:
    """A valid progressive JPEG of one grey: each scan refines one bit of one coefficient."""
    blocks = (-(-side // 8)) ** 2
    long_runs, rest = divmod(blocks, 32767)
    kind = max(rest, 1).bit_length() - 1
    # Runs of blocks without anything: two codes of two bits, then the run's length.
    bits = ("00" + "1" * 14) * long_runs
    if rest:
        bits += "01" + (f"{rest - (1 << kind):0{kind}b}" if kind else "")
    empty = _entropy(bits)
    segments = [
        (0xDB, bytes([0]) + bytes([1]) * 64),
        (0xC2, struct.pack(">BHHB3B", 8, side, side, 1, 1, 0x11, 0)),
        (0xC4, bytes([0x00, 1, *[0] * 15, 0])),
        (0xC4, bytes([0x10, 0, 2, *[0] * 14, 0xE0, kind << 4])),
    ]
    data = b"\xff\xd8" + b"".join(map(_segment, segments))
    data += _segment((0xDA, bytes([1, 1, 0, 0, 0, 0]))) + _entropy("0" * blocks)
    every = [(place, low) for place in range(1, 64) for low in range(13, -1, -1)]
    for place, low in every[: scans - 1]:
        high = 0 if low == 13 else low + 1
        data += _segment((0xDA, bytes([1, 1, 0, place, place, high << 4 | low]))) + empty
    return data + b"\xff\xd9"


def _segment(segment: tuple[int, bytes]) -> bytes:
    marker, content = segment
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def _entropy(bits: str) -> bytes:
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8).replace(b"\xff", b"\xff\0")
