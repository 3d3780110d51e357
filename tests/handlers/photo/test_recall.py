"""No face is published: close-ups, small, turned and cut faces, faces in the alpha channel. What is
no face is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jobwire.handlers.photo import PhotoOptions, PoolLimits
from jobwire.handlers.photo.results import Area, Photo
from tests.handlers.photo import images
from tests.handlers.photo.images import Pixels
from tests.handlers.photo.pool_runner import RunningPool
from tests.support import clause

FACE = Area(180, 64, 84, 112, "face")
"""The face of the portrait."""


def closeup(share: float, width: int = 900, height: int = 1200) -> tuple[Pixels, Area]:
    """The portrait, cropped so that its face has this share of the picture's height."""
    scale = share * height / FACE.height
    portrait = images.image(images.photograph()).resize(scale)
    left = round((FACE.left + FACE.width / 2) * scale - width / 2)
    top = round((FACE.top + FACE.height / 2) * scale - height / 2)
    around = portrait.embed(
        max(0, -left), max(0, -top), 2 * width + portrait.width, 2 * height + portrait.height,
        extend="copy",
    )  # fmt: skip
    picture = around.crop(max(0, left), max(0, top), width, height).numpy()
    x0, y0 = max(0, round(FACE.left * scale) - left), max(0, round(FACE.top * scale) - top)
    x1 = min(width, round(FACE.right * scale) - left)
    y1 = min(height, round(FACE.bottom * scale) - top)
    return picture, Area(x0, y0, x1 - x0, y1 - y0, "face")


def covered(face: Area, hidden: Sequence[Area]) -> float:
    """The share of the face that is hidden."""
    mask = np.zeros((face.height, face.width), np.bool_)
    for area in hidden:
        top, left = max(0, area.top - face.top), max(0, area.left - face.left)
        mask[top : max(0, area.bottom - face.top), left : max(0, area.right - face.left)] = True
    return float(mask.mean())


@clause("I-37")
@pytest.mark.parametrize("share", [0.4, 0.5, 0.7, 1.0, 1.2])
def test_i37_a_close_up_is_hidden(pool: RunningPool, target: Path, share: float) -> None:
    """A selfie: the detector sees faces of 10 to 300 pixels, and this one has up to 1,440."""
    picture, face = closeup(share)
    photo = pool.process(images.jpeg(picture), target).photo
    assert photo is not None
    assert covered(face, photo.hidden) == 1


@clause("I-37")
@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_i37_a_face_that_lies_on_its_side_is_hidden(
    pool: RunningPool, target: Path, quarters: int
) -> None:
    """Scanned, or without its EXIF orientation: nothing says which side is up."""
    upright, face = closeup(0.9, 600, 800)
    picture = np.rot90(upright, quarters)
    photo = pool.process(images.jpeg(np.ascontiguousarray(picture)), target).photo
    assert photo is not None
    mask = np.zeros(upright.shape[:2], np.bool_)
    turned = np.rot90(mask, quarters)  # a view of the mask
    for area in photo.hidden:
        turned[area.top : area.bottom, area.left : area.right] = True
    assert mask[face.top : face.bottom, face.left : face.right].mean() >= 0.9


@clause("I-37")
def test_i37_faces_of_24_pixels_in_a_small_picture_are_hidden(
    pool: RunningPool, target: Path
) -> None:
    """The picture is looked at twice as large, too. Two of the faces are cut by the frame."""
    backdrop = images.image(images.photograph("coffee.png")).thumbnail_image(
        360, height=240, size="force"
    )
    scale = 24 / FACE.height
    head = images.image(images.photograph()[20:240, 110:330]).resize(scale)
    places = [(40, 30), (150, 60), (250, 20), (80, 150), (200, 170), (-9, 90), (335, 120)]
    faces: list[Area] = []
    for left, top in places:
        backdrop = backdrop.insert(head, left, top)
        x0 = max(0, left + round((FACE.left - 110) * scale))
        x1 = min(360, left + round((FACE.right - 110) * scale))
        faces.append(Area(x0, top + round((FACE.top - 20) * scale), x1 - x0, 24, "face"))
    photo = pool.process(images.png(backdrop.numpy()), target).photo
    assert photo is not None
    assert [face for face in faces if covered(face, photo.hidden) < 0.9] == []


@clause("I-37")
def test_i37_a_face_in_the_alpha_channel_is_hidden(pool: RunningPool, target: Path) -> None:
    """White, and as opaque as the portrait is bright: on white there is nothing to see."""
    bright = images.photograph().mean(axis=2).astype(np.uint8)
    picture = np.dstack([np.full_like(images.photograph(), 255), bright])
    photo = pool.process(images.png(picture), target).photo
    assert photo is not None
    assert covered(FACE, photo.hidden) == 1


@clause("I-37")
def test_i37_strict_finds_what_balanced_misses(pool: RunningPool, tmp_path: Path) -> None:
    """Heads that are tilted by 45 degrees, 20 pixels high."""
    head = images.image(images.photograph()[20:240, 110:330])
    backdrop = images.image(images.photograph("coffee.png")).thumbnail_image(
        1200, height=800, size="force"
    )
    scale = 20 / FACE.height
    centres = [(x, y) for x in range(100, 1200, 200) for y in range(100, 800, 200)]
    for number, (x, y) in enumerate(centres):
        tilted = head.resize(scale).similarity(angle=45 if number % 2 else -45)
        backdrop = backdrop.insert(tilted, x - tilted.width // 2, y - tilted.height // 2)
    upload = images.png(backdrop.numpy())

    def found(photo: Photo | None) -> int:
        assert photo is not None
        return sum(
            any(a.left <= x < a.right and a.top <= y < a.bottom for a in photo.hidden)
            for x, y in centres
        )

    balanced = found(pool.process(upload, tmp_path / "balanced.webp").photo)
    options = PhotoOptions(sensitivity="strict")
    with RunningPool(PoolLimits(workers=1), options) as strict_pool:
        strict = found(strict_pool.process(upload, tmp_path / "strict.webp").photo)
    assert strict > balanced


@clause("I-37")
@pytest.mark.parametrize("long_side", [0, 1200])
@pytest.mark.parametrize(
    "name", ["chelsea.png", "motorcycle_left.png", "clock_motion.png", "cell.png", "coffee.png"]
)
def test_i37_a_photo_without_people_stays_as_it_is(
    pool: RunningPool, target: Path, name: str, long_side: int
) -> None:
    """A cat, a machine, a clock, a cell: one network sees a face in each, in one of both sizes."""
    pixels = images.photograph(name)
    picture = images.image(pixels if pixels.ndim == 3 else np.dstack([pixels] * 3))
    if long_side:
        picture = picture.resize(long_side / max(picture.width, picture.height))
    photo = pool.process(images.png(picture.numpy()), target).photo
    assert photo is not None
    assert (photo.hidden, photo.hidden_part) == ((), 0)


@clause("I-37", "I-38")
def test_i37_what_a_second_look_refutes_is_doubtful_and_can_be_hidden(
    pool: RunningPool, target: Path
) -> None:
    upload = images.png(images.photograph("motorcycle_left.png"))
    published = pool.process(upload, target).photo
    assert published is not None
    assert (published.hidden, published.is_doubtful) == ((), True)
    everything = PhotoOptions(hide_from="refuted")
    held = pool.process(upload, target, options=everything).photo
    assert held is not None
    assert {area.certainty for area in held.hidden} == {"refuted"}
    assert held.hidden_part > 0


@clause("I-37")
def test_i37_beside_a_certain_face_all_that_was_found_is_hidden(
    pool: RunningPool, target: Path
) -> None:
    """The part of a machine that is no face when it is alone: where people are, it may be one."""
    machine = images.image(images.photograph("motorcycle_left.png"))
    picture = machine.insert(images.image(images.photograph()), machine.width, 0, expand=True)
    photo = pool.process(images.png(picture.numpy()), target).photo
    assert photo is not None
    assert any(area.right <= machine.width for area in photo.hidden)
    assert covered(replace(FACE, left=FACE.left + machine.width), photo.hidden) == 1
    assert {area.certainty for area in photo.hidden} == {"sure"}
