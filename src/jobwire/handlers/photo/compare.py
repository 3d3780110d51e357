"""A picture for people: before with the found areas outlined, and after, side by side.

It shows what was hidden, so it is made only on request and never published.
"""

from pathlib import Path
from typing import Final

import numpy as np

from jobwire.handlers.photo.encode import webp, write_private
from jobwire.handlers.photo.options import PhotoOptions
from jobwire.handlers.photo.picture import Picture, Pixels, on_grey
from jobwire.handlers.photo.results import Area

_GAP: Final = 8
_LINE: Final = np.array((255, 40, 40), np.uint8)


def write_comparison(before: Picture, after: Picture, options: PhotoOptions, target: Path) -> None:
    """Write both into one WebP file."""
    left, right = on_grey(before.pixels, 255).copy(), on_grey(after.pixels, 255)
    for area in after.areas:
        _outline(left, area)
    gap = np.full((before.height, _GAP, 3), 255, np.uint8)
    write_private(target, webp(np.concatenate([left, gap, right], axis=1), options))


def _outline(pixels: Pixels, area: Area) -> None:
    line = max(2, max(pixels.shape[:2]) // 400)
    rows, columns = slice(area.top, area.bottom), slice(area.left, area.right)
    pixels[area.top : area.top + line, columns] = _LINE
    pixels[max(0, area.bottom - line) : area.bottom, columns] = _LINE
    pixels[rows, area.left : area.left + line] = _LINE
    pixels[rows, max(0, area.right - line) : area.right] = _LINE
