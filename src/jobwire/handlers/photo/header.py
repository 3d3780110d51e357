"""Type and size of an image, read from its first bytes without decoding anything.

Used by the step `validate`, and by the pool to know how much memory a photo will need. Pure
Python over untrusted bytes: every loop is bounded, and whatever does not fit is a BadHeader.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

Format = Literal["jpeg", "png", "webp", "avif", "heic"]
CONTENT_TYPES: Final[dict[str, Format]] = {
    "image/jpeg": "jpeg",
    "image/png": "png",
    "image/webp": "webp",
    "image/avif": "avif",
    "image/heic": "heic",
}
MAGIC_BYTES: Final = 40
"""So many bytes tell the type of an image."""
FORMATS: Final = "JPEG, PNG, WebP, AVIF or HEIC"

_MOST_SEGMENTS: Final = 10_000
# A marker inside entropy-coded data: not a stuffed byte, not a restart marker, not a fill byte.
_MARKER: Final = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_SOS: Final = 0xDA
_EOI: Final = 0xD9
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE: Final = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_WITHOUT_LENGTH: Final = frozenset({0x01, *range(0xD0, 0xD9)})
_AVIF_BRANDS: Final = frozenset({b"avif", b"avis"})
_HEIC_BRANDS: Final = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx"})
_SEQUENCES: Final = frozenset({b"avis", b"hevc", b"hevx", b"msf1"})
_MOST_BOXES: Final = 10_000


class BadHeader(Exception):
    """The bytes are not an image of an allowed type; the text has the reason."""


@dataclass(frozen=True, slots=True)
class PhotoHeader:
    """The facts in the first bytes."""

    format: Format
    width: int
    height: int
    is_animated: bool = False
    is_buffered: bool = False
    """Cannot be decoded line by line: a progressive JPEG, an interlaced or 16-bit PNG, all WebP,
    AVIF and HEIC."""

    @property
    def pixels(self) -> int:
        return self.width * self.height


def sniff(start: bytes) -> Format | None:
    """The type by its first `MAGIC_BYTES`; None if it is not an allowed one."""
    if start.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return "webp"
    if start[4:8] == b"ftyp":
        end = min(int.from_bytes(start[:4]), MAGIC_BYTES)
        brands = {start[8:12], *(start[at : at + 4] for at in range(16, end - 3, 4))}
        if brands & _AVIF_BRANDS:
            return "avif"
        if brands & _HEIC_BRANDS:
            return "heic"
    return None


def read_header(data: bytes) -> PhotoHeader:
    """Type, size and kind."""
    match sniff(data[:MAGIC_BYTES]):
        case "jpeg":
            header = _jpeg(data)
        case "png":
            header = _png(data)
        case "webp":
            header = _webp(data)
        case "avif" | "heic" as kind:
            header = _heif(data, kind)
        case None:
            raise BadHeader(f"is not a {FORMATS} image")
    if header.width < 1 or header.height < 1:
        raise BadHeader("has no pixels")
    return header


def count_scans(data: bytes, most: int) -> int:
    """How many scans a JPEG has, counted up to one more than `most`."""
    scans = 0
    for marker, _ in _segments(data):
        scans += marker == _SOS
        if scans > most:
            break
    return scans


def _segments(data: bytes) -> Iterator[tuple[int, int]]:
    """The marker of each segment, and where its contents begin."""
    at = 2
    for _ in range(_MOST_SEGMENTS):
        found = _MARKER.search(data, at)
        if found is None or data[found.end() - 1] == _EOI:
            return
        marker, at = data[found.end() - 1], found.end()
        if marker in _WITHOUT_LENGTH:
            yield marker, at
            continue
        length = int.from_bytes(data[at : at + 2])
        if length < 2:
            raise BadHeader("is a damaged JPEG")
        yield marker, at + 2
        at += length
    raise BadHeader(f"has more than {_MOST_SEGMENTS} segments")


def _jpeg(data: bytes) -> PhotoHeader:
    for marker, begin in _segments(data):
        if marker in _FRAMES:
            height = int.from_bytes(data[begin + 1 : begin + 3])
            width = int.from_bytes(data[begin + 3 : begin + 5])
            return PhotoHeader("jpeg", width, height, is_buffered=marker in _PROGRESSIVE)
        if marker == _SOS:
            break
    raise BadHeader("is a damaged JPEG: it has no frame header")


def _png(data: bytes) -> PhotoHeader:
    if data[12:16] != b"IHDR" or len(data) < 33:
        raise BadHeader("is a damaged PNG: it has no header")
    is_buffered = data[28] != 0 or data[24] == 16
    is_animated = False
    at = 33
    for _ in range(_MOST_SEGMENTS):  # what announces an animation stands before the first data
        kind = data[at + 4 : at + 8]
        if kind in (b"IDAT", b"IEND", b""):
            break
        is_animated = is_animated or kind == b"acTL"
        at += 12 + int.from_bytes(data[at : at + 4])
    else:
        raise BadHeader(f"has more than {_MOST_SEGMENTS} chunks")
    width, height = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    return PhotoHeader("png", width, height, is_animated, is_buffered)


def _webp(data: bytes) -> PhotoHeader:
    kind, body = data[12:16], data[20:30]
    if len(body) < 10:
        raise BadHeader("is a damaged WebP: it has no header")
    if kind == b"VP8X":
        width = int.from_bytes(body[4:7], "little") + 1
        height = int.from_bytes(body[7:10], "little") + 1
        return PhotoHeader("webp", width, height, bool(body[0] & 0b10), is_buffered=True)
    if kind == b"VP8L" and body[0] == 0x2F:
        bits = int.from_bytes(body[1:5], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        return PhotoHeader("webp", width, height, is_buffered=True)
    if kind == b"VP8 " and body[3:6] == b"\x9d\x01\x2a":
        width = int.from_bytes(body[6:8], "little") & 0x3FFF
        height = int.from_bytes(body[8:10], "little") & 0x3FFF
        return PhotoHeader("webp", width, height, is_buffered=True)
    raise BadHeader("is a damaged WebP: it has no header")


def _heif(data: bytes, kind: Literal["avif", "heic"]) -> PhotoHeader:
    """The largest picture in the file: a photo of several tiles is larger than each of them, and
    before it is turned and cropped it is not smaller than afterwards."""
    place = range(len(data))
    # `meta` has a version and flags before its boxes.
    for name, skipped in ((b"meta", 4), (b"iprp", 0), (b"ipco", 0)):
        found = next(_boxes(data, name, place), None)  # there is one of each
        if found is None:
            raise BadHeader(f"is a damaged {kind.upper()}: it has no header")
        place = found[skipped:]
    width = height = 0
    for box in _boxes(data, b"ispe", place):
        content = data[box.start + 4 : box.start + 12]
        size = int.from_bytes(content[:4]), int.from_bytes(content[4:])
        width, height = max((width, height), size, key=lambda each: each[0] * each[1])
    return PhotoHeader(kind, width, height, data[8:12] in _SEQUENCES, is_buffered=True)


def _boxes(data: bytes, kind: bytes, place: range) -> Iterator[range]:
    """Where the contents of the boxes of a kind are, in a part of the file."""
    at, end = place.start, place.stop
    for _ in range(_MOST_BOXES):
        if at + 8 > end:
            return
        length, begin = int.from_bytes(data[at : at + 4]), at + 8
        if length == 1:
            length, begin = int.from_bytes(data[at + 8 : at + 16]), at + 16
        elif length == 0:
            length = end - at
        if length < begin - at:
            raise BadHeader("has a damaged box")
        if data[at + 4 : at + 8] == kind:
            yield range(begin, min(at + length, end))
        at += length
    raise BadHeader(f"has more than {_MOST_BOXES} boxes")
