"""CenterFace: slower than YuNet, and better at turned, cut and covered faces."""

from typing import Final

import numpy as np

from jobwire.handlers.photo.detectors.boxes import Boxes, distinct
from jobwire.handlers.photo.detectors.network import as_input, session
from jobwire.handlers.photo.detectors.weights import CENTERFACE, weights
from jobwire.handlers.photo.picture import Pixels

_OUTPUTS: Final = ("537", "538", "539")
"""Heat map of centres, sizes, offsets of the centres: as the model names them."""
_STRIDE: Final = 4
_TILE: Final = 1024
_OVERLAP: Final = 128
"""It needs 250 bytes of memory a pixel, so a large picture is looked at in tiles. A face that no
tile has whole is found in a smaller view."""


class CenterFace:
    """Implements `Network`."""

    def __init__(self) -> None:
        self._session = session(weights(CENTERFACE))

    def find(self, pixels: Pixels, score: float) -> Boxes:
        height, width = pixels.shape[:2]
        tiles = [
            self._find(pixels[top : top + _TILE, left : left + _TILE], score)
            + np.array([left, top, left, top, 0], np.float32)
            for top in _starts(height)
            for left in _starts(width)
        ]
        return distinct(np.concatenate(tiles))

    def _find(self, pixels: Pixels, score: float) -> Boxes:
        heat, sizes, offsets = self._session.run(_OUTPUTS, {"input.1": as_input(pixels)})
        rows, columns = np.nonzero(heat[0, 0] >= score)
        height, width = np.exp(sizes[0, :, rows, columns].clip(max=10)).T * _STRIDE
        down, across = offsets[0, :, rows, columns].T
        top = (rows + down + 0.5) * _STRIDE - height / 2
        left = (columns + across + 0.5) * _STRIDE - width / 2
        scores = heat[0, 0, rows, columns]
        boxes = np.stack([left, top, left + width, top + height, scores], axis=1)
        return distinct(boxes.astype(np.float32))


def _starts(length: int) -> range:
    """Where tiles begin along one side."""
    return range(0, max(1, length - _OVERLAP), _TILE - _OVERLAP)
