"""Step 4, hide: every area is filled so that nothing of its contents can come back.

The contents are erased before anything is computed, so the result cannot depend on them
(non-interference, I-23). The fill is a smooth continuation of the pixels around the area, or grey.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from jobwire.handlers.photo.options import PhotoOptions
from jobwire.handlers.photo.picture import Mask, Picture, Pixels
from jobwire.handlers.photo.results import Area

_PADDING: Final = (0.3, 0.15)
"""Of the area's width and height, on each side: of a small area, whose box is less exact, and of
one that fills much of the picture, where the same part is many pixels."""
_FILLS: Final = (0.2, 0.5)
"""The part of the picture's side that such areas have; between them the padding is between."""
_RING: Final = 0.25
"""Of the padded area's longer side: how far around it colours are taken from."""
_GREY: Final = 128
_FINEST: Final = 256
"""A fill is computed for so many cells along its longer side, then stretched: it is smooth."""
_MOST_WINDOWS: Final = 200
"""For more areas the whole picture is one window."""

_Floats = npt.NDArray[np.float32] | npt.NDArray[np.float64]
"""The first in truth; sums and products of it have the type of the second."""


def hide(picture: Picture, options: PhotoOptions) -> Picture:
    """The picture without the contents of its areas, and the areas as they were hidden."""
    areas = tuple(_padded(area, picture) for area in picture.areas)
    if not areas:
        return picture
    hidden = np.zeros((picture.height, picture.width), np.bool_)
    for area in areas:
        hidden[area.top : area.bottom, area.left : area.right] = True
    pixels = picture.pixels.copy()
    np.copyto(pixels, _GREY, where=hidden[:, :, np.newaxis])  # nothing knows what was there now
    if options.fill == "surroundings":
        for window in _windows(areas, picture):
            _fill(pixels[window], hidden[window])
    if pixels.shape[2] == 4:
        pixels[hidden, 3] = 255  # the edge of what was transparent is a shape, too
    return replace(picture, pixels=pixels, areas=areas, hidden_part=float(hidden.mean()))


def _padded(area: Area, picture: Picture) -> Area:
    part = max(area.width / picture.width, area.height / picture.height)
    padding = float(np.interp(part, _FILLS, _PADDING))
    across, down = math.ceil(area.width * padding), math.ceil(area.height * padding)
    left, top = max(0, area.left - across), max(0, area.top - down)
    right = min(picture.width, area.right + across)
    bottom = min(picture.height, area.bottom + down)
    return replace(area, left=left, top=top, width=right - left, height=bottom - top)


def _windows(areas: tuple[Area, ...], picture: Picture) -> Iterator[tuple[slice, slice]]:
    """The parts of the picture to fill: each area with its ring, those that touch as one."""
    if len(areas) > _MOST_WINDOWS:
        yield slice(None), slice(None)
        return
    boxes = [_with_ring(area, picture) for area in areas]
    merged: list[tuple[int, int, int, int]] = []
    while boxes:
        box = boxes.pop()
        touching = [each for each in merged if _touch(box, each)]
        if touching:
            merged = [each for each in merged if each not in touching]
            lefts, tops, rights, bottoms = zip(box, *touching, strict=True)
            boxes.append((min(lefts), min(tops), max(rights), max(bottoms)))
        else:
            merged.append(box)
    for left, top, right, bottom in merged:
        yield slice(top, bottom), slice(left, right)


def _with_ring(area: Area, picture: Picture) -> tuple[int, int, int, int]:
    ring = max(4, math.ceil(max(area.width, area.height) * _RING))
    return (
        max(0, area.left - ring),
        max(0, area.top - ring),
        min(picture.width, area.right + ring),
        min(picture.height, area.bottom + ring),
    )


def _touch(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _fill(pixels: Pixels, hidden: Mask) -> None:
    """Continue what is known into what is hidden, in place."""
    if hidden.all():
        return
    step = -(-max(hidden.shape) // _FINEST)
    known = (~hidden).astype(np.float32)[:, :, np.newaxis]
    smooth = _continued(_sums(pixels * known, step), _sums(known, step))
    rows, columns = (_extent(places) for places in hidden.nonzero())
    filled = _stretched(_stretched(smooth, step, rows, 0), step, columns, 1)
    rounded = filled.round().clip(0, 255).astype(np.uint8)
    np.copyto(pixels[rows, columns], rounded, where=hidden[rows, columns, np.newaxis])


def _continued(sums: _Floats, counts: _Floats) -> _Floats:
    """The mean where something is known; elsewhere that of the next coarser level.

    `sums` are of the known values in each cell, `counts` how many those are.
    """
    means = sums / np.maximum(counts, 1)
    if counts.all():
        return means
    height, width = sums.shape[:2]
    coarse = _continued(_sums(means * (counts > 0), 2), _sums((counts > 0).astype(np.float32), 2))
    rows, columns = slice(0, height), slice(0, width)
    return np.where(counts > 0, means, _stretched(_stretched(coarse, 2, rows, 0), 2, columns, 1))


def _sums(values: _Floats, step: int) -> _Floats:
    """Sums of squares of `step` by `step`."""
    height, width, bands = values.shape
    if step == 1:
        return values
    whole = np.pad(values, ((0, -height % step), (0, -width % step), (0, 0)))
    rows = whole.reshape(-1, step, whole.shape[1], bands).sum(axis=1, dtype=np.float32)
    return rows.reshape(len(rows), -1, step, bands).sum(axis=2, dtype=np.float32)


def _stretched(values: _Floats, step: int, part: slice, axis: Literal[0, 1]) -> _Floats:
    """`part` of what is `step` times as long along one axis, interpolated."""
    last = values.shape[axis] - 1
    cells: npt.NDArray[np.intp] = np.arange(part.start, part.stop, dtype=np.intp)
    places = ((cells + 0.5) / step - 0.5).clip(0, last)
    before = places.astype(np.intp)
    after = np.minimum(before + 1, last)
    share = (places - before).astype(np.float32)
    share = share[:, np.newaxis, np.newaxis] if axis == 0 else share[:, np.newaxis]
    return values.take(before, axis) * (1 - share) + values.take(after, axis) * share


def _extent(places: npt.NDArray[np.intp]) -> slice:
    """From the first place to the last."""
    return slice(int(places.min()), int(places.max()) + 1)
