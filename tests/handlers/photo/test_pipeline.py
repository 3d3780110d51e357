"""The output for a valid photo: upright, correct colours, no metadata, WebP."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from jobwire.handlers.photo import PhotoOptions, Step
from tests.handlers.photo import images
from tests.handlers.photo.images import COLOURS, Pixels
from tests.handlers.photo.pool_runner import RunningPool
from tests.support import clause

CENTRES = {"red": (0.25, 0.25), "green": (0.25, 0.75), "blue": (0.75, 0.25), "yellow": (0.75, 0.75)}


def _assert_quarters(pixels: Pixels, tolerance: int = 10) -> None:
    height, width = pixels.shape[:2]
    for name, (down, across) in CENTRES.items():
        seen = pixels[int(height * down), int(width * across), :3].astype(int)
        assert np.abs(seen - COLOURS[name]).max() <= tolerance, (name, seen)


@clause("I-22")
def test_i22_steps_are_reported_in_order(pool: RunningPool, target: Path) -> None:
    outcome = pool.process(images.jpeg(images.photograph()), target)
    assert outcome.steps == tuple(Step)
    assert [step.value for step in Step] == ["validate", "decode", "detect", "hide", "encode"]


@clause("I-24")
def test_i24_result_describes_the_file_that_was_written(pool: RunningPool, target: Path) -> None:
    outcome = pool.process(images.jpeg(images.photograph()), target)
    photo, written = outcome.photo, target.read_bytes()
    assert photo is not None
    assert (photo.file_size, photo.sha256) == (len(written), hashlib.sha256(written).hexdigest())
    assert (photo.width, photo.height, photo.content_type) == (512, 512, "image/webp")
    assert written[8:12] == b"WEBP"
    assert target.stat().st_mode & 0o777 == 0o600


@clause("I-22")
@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [(3000, 1500, (1920, 960)), (1500, 3000, (960, 1920)), (300, 200, (300, 200)), (9000, 1, None)],
)
def test_i22_long_side_is_bounded_and_small_photos_are_not_enlarged(
    plain_pool: RunningPool, target: Path, width: int, height: int, expected: tuple[int, int] | None
) -> None:
    outcome = plain_pool.process(images.jpeg(images.quarters(width, height)), target)
    photo = outcome.photo
    assert photo is not None
    assert (photo.width, photo.height) == (expected or (1920, 1))
    assert (photo.original_width, photo.original_height) == (width, height)


@clause("I-24")
@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
def test_i24_no_metadata_survives(pool: RunningPool, target: Path, kind: str) -> None:
    image = images.image(images.photograph()).copy()
    text, blob = images.vips.GValue.gstr_type, images.vips.GValue.blob_type
    image.set_type(text, "exif-ifd0-Artist", "MARKER-ARTIST")
    image.set_type(text, "exif-ifd3-GPSLatitude", "52/1 30/1 0/1")
    image.set_type(blob, "xmp-data", b"<x:xmpmeta>MARKER-XMP</x:xmpmeta>")
    image.set_type(blob, "iptc-data", b"\x1c\x02\x50\x00\x0bMARKER-IPTC")
    upload: bytes = getattr(image.icc_transform("p3", input_profile="srgb"), f"{kind}save_buffer")()
    before = images.vips.Image.new_from_buffer(upload, "")
    assert {"exif-data", "icc-profile-data", "exif-ifd3-GPSLatitude"} <= set(before.get_fields())

    assert pool.process(upload, target).photo is not None
    written = target.read_bytes()
    assert set(images.chunks(written)) <= {"VP8 ", "VP8L", "VP8X", "ALPH"}
    assert b"MARKER" not in written
    after = images.vips.Image.new_from_buffer(written, "").get_fields()
    assert [name for name in after if name.startswith(("exif", "xmp", "iptc", "icc"))] == []


@clause("I-22")
@pytest.mark.parametrize("orientation", range(1, 9))
def test_i22_every_orientation_is_published_upright(
    plain_pool: RunningPool, target: Path, orientation: int
) -> None:
    upright = images.quarters()
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, 3),
    }[orientation]
    image = images.image(np.ascontiguousarray(stored)).copy()
    image.set_type(images.vips.GValue.gint_type, "orientation", orientation)
    outcome = plain_pool.process(image.jpegsave_buffer(Q=95), target)
    assert outcome.photo is not None
    assert (outcome.photo.width, outcome.photo.height) == (160, 120)
    assert (outcome.photo.original_width, outcome.photo.original_height) == (160, 120)
    _assert_quarters(images.read(target))


@clause("I-24")
@pytest.mark.parametrize(
    "kind",
    ["rgb", "progressive", "cmyk", "cmyk without profile", "p3", "16 bit", "palette", "interlaced",
     "webp", "lossless webp", "junk profile"],
)  # fmt: skip
def test_i24_colours_are_converted_correctly(
    plain_pool: RunningPool, target: Path, kind: str
) -> None:
    image = images.image(images.quarters())
    uploads = {
        "rgb": lambda: image.jpegsave_buffer(Q=95),
        "progressive": lambda: image.jpegsave_buffer(Q=95, interlace=True),
        "cmyk": lambda: image.icc_transform("cmyk", input_profile="srgb").jpegsave_buffer(Q=95),
        "cmyk without profile": lambda: image.icc_transform(
            "cmyk", input_profile="srgb"
        ).jpegsave_buffer(Q=95, keep="none"),
        "p3": lambda: image.icc_transform("p3", input_profile="srgb").jpegsave_buffer(Q=95),
        "16 bit": lambda: image.colourspace("rgb16").pngsave_buffer(),
        "palette": lambda: image.pngsave_buffer(palette=True),
        "interlaced": lambda: image.pngsave_buffer(interlace=True),
        "webp": lambda: image.webpsave_buffer(Q=95),
        "lossless webp": lambda: image.webpsave_buffer(lossless=True),
        "junk profile": lambda: images.with_segment(
            image.jpegsave_buffer(Q=95), 0xE2, b"ICC_PROFILE\0\x01\x01" + bytes(range(256)) * 4
        ),
    }
    assert plain_pool.process(uploads[kind](), target).photo is not None
    if kind.startswith("cmyk"):  # which cannot represent every colour: the nearest ones
        printed = image.icc_transform("cmyk", input_profile="srgb")
        expected = printed.icc_transform("srgb", input_profile="cmyk").numpy()
        assert np.abs(images.read(target).astype(int) - expected).mean() < 3
    else:
        _assert_quarters(images.read(target), tolerance=12)


@clause("I-24")
def test_i24_grey_photos_become_rgb(pool: RunningPool, target: Path) -> None:
    grey = images.image(images.photograph()).colourspace("b-w")
    outcome = pool.process(grey.jpegsave_buffer(Q=95), target)
    assert outcome.photo is not None
    assert len(outcome.photo.hidden) == 1
    assert images.read(target).shape == (512, 512, 3)


@clause("I-24")
def test_i24_alpha_is_kept_and_nothing_invisible_is_published(
    plain_pool: RunningPool, target: Path
) -> None:
    pixels = np.dstack([images.quarters(), np.full((120, 160), 255, np.uint8)])
    pixels[:60, :80, 3] = 0  # red is fully transparent
    pixels[60:, 80:, 3] = 128
    outcome = plain_pool.process(images.png(pixels), target, PhotoOptions(detect=(), quality=100))
    assert outcome.photo is not None
    seen = images.read(target).astype(int)
    assert seen.shape == (120, 160, 4)
    assert np.array_equal(seen[:, :, 3], pixels[:, :, 3])
    assert np.abs(seen[30, 120, :3] - COLOURS["green"]).max() <= 10
    assert np.abs(seen[10:50, 10:70, :3] - COLOURS["red"]).max(axis=2).min() > 30
