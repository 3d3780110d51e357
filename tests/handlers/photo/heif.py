"""AVIF and HEIC files for tests. The HEIC files of `heic/` were made by us; see its README."""

from __future__ import annotations

from pathlib import Path

from tests.handlers.photo.images import Pixels, image

_FOLDER = Path(__file__).parent / "heic"


def heic(name: str = "plain") -> bytes:
    """One of the HEIC files."""
    return (_FOLDER / f"{name}.heic").read_bytes()


def avif(pixels: Pixels, **options: object) -> bytes:
    """The pixels as AVIF."""
    return image(pixels).heifsave_buffer(compression="av1", Q=70, keep="none", **options)


def box(kind: bytes, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return (8 + len(content)).to_bytes(4) + kind + content


def full_box(kind: bytes, *parts: bytes, version: int = 0) -> bytes:
    return box(kind, bytes([version, 0, 0, 0]), *parts)


def grid(width: int = 320, height: int = 240, *, rows: int = 2, columns: int = 2) -> bytes:
    """A HEIC of tiles, as phones write it: each tile is the plain picture of 160 × 120 pixels."""
    plain = heic()
    at = plain.index(b"hvcC")
    configuration = plain[at - 4 : at - 4 + int.from_bytes(plain[at - 4 : at])]
    tile = plain[plain.index(b"mdat") + 4 :]
    number = rows * columns
    items = [(each, b"hvc1") for each in range(1, number + 1)] + [(number + 1, b"grid")]
    whole = bytes([0, 0, rows - 1, columns - 1]) + width.to_bytes(2) + height.to_bytes(2)
    properties = box(
        b"iprp",
        box(b"ipco", configuration, size_box(160, 120), size_box(width, height)),
        full_box(
            b"ipma",
            len(items).to_bytes(4),
            *(
                each.to_bytes(2) + (b"\x02\x81\x02" if kind == b"hvc1" else b"\x01\x03")
                for each, kind in items
            ),
        ),
    )
    infos = (full_box(b"infe", n.to_bytes(2), b"\0\0", k, b"\0", version=2) for n, k in items)
    tiles = b"".join(each.to_bytes(2) for each in range(1, number + 1))
    parts = [
        full_box(b"hdlr", bytes(4), b"pict", bytes(13)),
        full_box(b"pitm", (number + 1).to_bytes(2)),
        full_box(b"iinf", len(items).to_bytes(2), *infos),
        full_box(b"iref", box(b"dimg", (number + 1).to_bytes(2), number.to_bytes(2), tiles)),
        properties,
    ]
    kind = box(b"ftyp", b"heic", bytes(4), b"mif1", b"heic")

    def with_places(begin: int) -> bytes:
        """The file, if its data begins there."""
        places = [
            each.to_bytes(2) + b"\0\0\0\1" + begin.to_bytes(4) + len(tile).to_bytes(4)
            for each in range(1, number + 1)
        ]
        last = (begin + len(tile)).to_bytes(4) + len(whole).to_bytes(4)
        places.append((number + 1).to_bytes(2) + b"\0\0\0\1" + last)
        located = full_box(b"iloc", b"\x44\x00", len(items).to_bytes(2), *places)
        head = kind + full_box(b"meta", *parts, located)
        return head + box(b"mdat", tile, whole)

    begin = with_places(0).index(b"mdat") + 4
    return with_places(begin)


def size_box(width: int, height: int) -> bytes:
    return full_box(b"ispe", width.to_bytes(4), height.to_bytes(4))


def resized(data: bytes, width: int, height: int) -> bytes:
    """The file with another size in its header."""
    at = data.index(b"ispe") + 8
    return data[:at] + width.to_bytes(4) + height.to_bytes(4) + data[at + 8 :]
