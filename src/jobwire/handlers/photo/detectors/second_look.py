"""Looks again at what was found in a picture in which no face is certain.

A network sees faces in cats, food and machines, and a false area of half a picture leaves nothing
of it. So CenterFace looks at each find once more, alone and enlarged.
"""

from typing import Final

import numpy as np

from jobwire.handlers.photo import vips
from jobwire.handlers.photo.detectors.boxes import Boxes, strongest
from jobwire.handlers.photo.detectors.network import Network, find_turned
from jobwire.handlers.photo.picture import Pixels
from jobwire.handlers.photo.results import Certainty

_LIKELY: Final = 1.3
"""CenterFace's scores in its view and in both looks together, of 3: as good as certain."""
_POSSIBLE: Final = 0.9
"""With less, it is no face."""
_POSSIBLE_STRICT: Final = 0.3
_LARGE: Final = 0.18
"""Of the picture's pixels: with its padding, such an area hides a third, so it must be likely."""
_SIDES: Final = (96, 160)
"""The looks: the long side of what is cut out, twice as large as the find."""
_FLOOR: Final = 0.02


class SecondLook:
    """Used by the detector of faces."""

    def __init__(self, network: Network, *, is_strict: bool) -> None:
        self._network = network
        self._possible = _POSSIBLE_STRICT if is_strict else _POSSIBLE

    def certainty(self, pixels: Pixels, box: Boxes, score: float, quarters: int) -> Certainty:
        """How certain a find is, with the score that the network gave it at first. `quarters` is
        how often the view in which it was seen best was turned counterclockwise."""
        score += sum(self._look(pixels, box, quarters, side) for side in _SIDES)
        if score >= _LIKELY:
            return "sure"
        height, width = pixels.shape[:2]
        is_large = (box[2:4] - box[:2]).prod() > _LARGE * width * height
        return "doubtful" if score >= self._possible and not is_large else "refuted"

    def _look(self, pixels: Pixels, box: Boxes, quarters: int, side: int) -> float:
        """The score of the find in a picture of itself and half its size around."""
        height, width = pixels.shape[:2]
        left, top, right, bottom = (float(value) for value in box[:4])
        reach = max(right - left, bottom - top)
        middle_x, middle_y = (left + right) / 2, (top + bottom) / 2
        x0, y0 = max(0, int(middle_x - reach)), max(0, int(middle_y - reach))
        x1, y1 = min(width, int(middle_x + reach) + 1), min(height, int(middle_y + reach) + 1)
        part = pixels[y0:y1, x0:x1]
        if part.size == 0:
            return 0.0
        scale = side / max(part.shape[:2])
        copy = vips.from_pixels(part).resize(scale, kernel="linear").numpy()
        boxes = find_turned(self._network, copy, quarters, _FLOOR)
        boxes[:, :4] = boxes[:, :4] / scale + (x0, y0, x0, y0)
        return float(strongest(boxes, box[np.newaxis])[0])
