"""AVIF and HEIC: what phones send (I-43)."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from jobwire.handlers.photo import Photo, PhotoError, PhotoOptions, PhotoPool, PoolLimits
from jobwire.handlers.photo.header import BadHeader, read_header, sniff
from tests.handlers.photo import images
from tests.handlers.photo.heif import avif, box, full_box, grid, heic, resized, size_box
from tests.support import clause

pytest.importorskip("pi_heif")
RED, GREEN, BLUE, YELLOW = (images.COLOURS[name] for name in ("red", "green", "blue", "yellow"))
UPRIGHT = [RED, GREEN, BLUE, YELLOW]


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[PhotoPool]:
    async with PhotoPool(PoolLimits(workers=1), PhotoOptions(detect=())) as opened:
        yield opened


async def run(pool: PhotoPool, folder: Path, data: bytes, kind: str) -> tuple[Photo, bytes]:
    source, target = folder / "source", folder / "target"
    source.write_bytes(data)
    options = PhotoOptions(detect=(), content_type=f"image/{kind}")
    photo = await pool.process(source, target, options=options)
    return photo, target.read_bytes()


def corners(data: bytes) -> list[tuple[int, ...]]:
    """The colours in the middle of the quarters, as far as a lossy codec keeps them."""
    pixels = images.read(data)[:, :, :3].astype(int)
    height, width = pixels.shape[:2]
    places = [(h, w) for h in (height // 4, 3 * height // 4) for w in (width // 4, 3 * width // 4)]
    found = [pixels[place] for place in places]
    known = [np.array(each) for each in UPRIGHT]
    nearest = [min(known, key=lambda each, one=one: abs(each - one).sum()) for one in found]
    assert all(abs(a - b).max() < 60 for a, b in zip(found, nearest, strict=True)), found
    return [tuple(int(value) for value in each) for each in nearest]


@clause("I-43")
async def test_i43_heic_photos_are_upright_and_without_metadata(
    pool: PhotoPool, tmp_path: Path
) -> None:
    assert "image/heic" in pool.content_types
    expected = {
        "plain": (160, 120, UPRIGHT),
        "turned": (120, 160, [BLUE, RED, YELLOW, GREEN]),
        "mirrored": (160, 120, [GREEN, RED, YELLOW, BLUE]),
        "ten-bit": (160, 120, UPRIGHT),
        "two": (160, 120, UPRIGHT),
    }
    for name, (width, height, colours) in expected.items():
        photo, published = await run(pool, tmp_path, heic(name), "heic")
        assert (photo.width, photo.height) == (width, height), name
        assert (photo.original_width, photo.original_height) == (width, height), name
        assert corners(published) == colours, name
        assert set(images.chunks(published)) <= {"VP8 ", "VP8L"}, name
        assert b"MARK-OF-THE-ARTIST" not in published
    photo, published = await run(pool, tmp_path, heic("grey"), "heic")
    assert images.read(published).shape == (120, 160, 3)
    _, published = await run(pool, tmp_path, heic("alpha"), "heic")
    pixels = images.read(published)
    assert pixels.shape == (120, 160, 4)
    assert pixels[30, 40, 3] == 0
    assert pixels[90, 120, 3] == 255


@clause("I-43")
async def test_i43_a_heic_of_tiles_is_one_picture(pool: PhotoPool, tmp_path: Path) -> None:
    header = read_header(grid())
    assert (header.format, header.width, header.height) == ("heic", 320, 240)
    photo, published = await run(pool, tmp_path, grid(), "heic")
    assert (photo.width, photo.height) == (320, 240)
    pixels = images.read(published)
    assert corners(pixels_as_png(pixels[:120, :160])) == UPRIGHT
    assert corners(pixels_as_png(pixels[120:, 160:])) == UPRIGHT


def pixels_as_png(pixels: images.Pixels) -> bytes:
    return images.png(np.ascontiguousarray(pixels))


@clause("I-43")
async def test_i43_avif_photos_are_read(pool: PhotoPool, tmp_path: Path) -> None:
    quarters = images.quarters()
    alpha = np.full((120, 160, 1), 255, np.uint8)
    alpha[:60, :80] = 0
    deep = images.image(quarters).cast("ushort") * 257
    deep = deep.cast("ushort").copy(interpretation="rgb16")
    ten_bit = deep.heifsave_buffer(compression="av1", Q=80, bitdepth=10)
    assert ten_bit.count(b"av01") == 1
    for data in (avif(quarters), ten_bit):
        assert read_header(data).format == "avif"
        photo, published = await run(pool, tmp_path, data, "avif")
        assert (photo.width, photo.height) == (160, 120)
        assert corners(published) == UPRIGHT
    _, published = await run(
        pool, tmp_path, avif(np.concatenate([quarters, alpha], axis=2)), "avif"
    )
    pixels = images.read(published)
    assert (pixels.shape[2], int(pixels[30, 40, 3]), int(pixels[90, 120, 3])) == (4, 0, 255)


@clause("I-43", "I-22")
async def test_i43_hostile_files_fail_alone(pool: PhotoPool, tmp_path: Path) -> None:
    """Cut off, of another size than they say, of another codec, or larger than allowed."""
    quarters = images.quarters()
    hostile = {
        "half HEIC": (heic()[:-100], "heic", "DECODE_FAILED"),
        "half AVIF": (avif(quarters)[:-100], "avif", "DECODE_FAILED"),
        "larger than its header": (resized(heic(), 16, 16), "heic", "DECODE_FAILED"),
        "HEVC in an AVIF": (heic().replace(b"heic", b"avif"), "avif", "DECODE_FAILED"),
        "AV1 in a HEIC": (avif(quarters).replace(b"avif", b"heic"), "heic", "DECODE_FAILED"),
        "bomb": (resized(heic(), 16_000, 16_000), "heic", "VALIDATION_FAILED"),
        "long bomb": (resized(avif(quarters), 60_000, 100), "avif", "VALIDATION_FAILED"),
        "grid bomb": (grid(65_000, 65_000), "heic", "VALIDATION_FAILED"),
        "grid of missing tiles": (grid(16_000, 4_000), "heic", "DECODE_FAILED"),
        "no size": (heic().replace(b"ispe", b"free"), "heic", "VALIDATION_FAILED"),
        "sequence": (b"\0\0\0\x18ftypavis" + avif(quarters)[12:], "avif", "VALIDATION_FAILED"),
        "declared as AVIF": (heic(), "avif", "VALIDATION_FAILED"),
    }
    for name, (data, kind, code) in hostile.items():
        with pytest.raises(PhotoError) as failed:
            await run(pool, tmp_path, data, kind)
        assert failed.value.error_code == code, (name, failed.value, failed.value.detail)
    photo, _ = await run(pool, tmp_path, heic(), "heic")
    assert photo.width == 160


@clause("I-43")
def test_i43_headers_of_any_bytes_are_read_in_bounded_time() -> None:
    chance = random.Random(43)
    for data in (heic(), heic("alpha"), grid(), avif(images.quarters())):
        for _ in range(300):
            damaged = bytearray(data)
            for _ in range(chance.randint(1, 8)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            with contextlib.suppress(BadHeader):
                read_header(bytes(damaged[: chance.randint(12, len(damaged))]))
    start = box(b"ftyp", b"heic", bytes(4), b"mif1")
    with pytest.raises(BadHeader):
        read_header(start + box(b"free") * 20_000 + full_box(b"meta"))
    nested = box(b"iprp", box(b"ipco", *[size_box(1, 1)] * 20_000))
    with pytest.raises(BadHeader):
        read_header(start + full_box(b"meta", nested))
    assert sniff(box(b"ftyp", b"mif1", bytes(4), b"mif1", b"miaf")) is None
    assert sniff(box(b"ftyp", b"mif1", bytes(4), b"miaf", b"avif")) == "avif"
    assert sniff(box(b"ftyp", b"mif1", bytes(4), b"miaf", b"heic")) == "heic"
    assert sniff(box(b"ftyp", b"isom", bytes(4), b"mp41")) is None
