"""The detector `faces`: networks look at several views of a picture, and what they find is joined.

A network sees faces of 10 to 300 pixels. So it looks at the pixels that will be published, at
smaller copies for large faces, at a larger copy of a small picture, and at turned copies. `strict`
adds turned copies at the full size and a second network. A false area is the cheaper error.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from jobwire.handlers.photo import vips
from jobwire.handlers.photo.detectors.boxes import Boxes, by_score, joined, turned
from jobwire.handlers.photo.detectors.centerface import CenterFace
from jobwire.handlers.photo.detectors.network import Network
from jobwire.handlers.photo.detectors.yunet import YuNet
from jobwire.handlers.photo.options import Sensitivity
from jobwire.handlers.photo.picture import Pixels
from jobwire.handlers.photo.results import Area

LABEL: Final = "face"
_ENLARGED_BELOW: Final = 960
"""Long side of pictures that are looked at twice as large, too."""
_FULL: Final = 0
_TURNS: Final = (1, 2, 3)


class _View(NamedTuple):
    side: int
    """The long side; `_FULL`: of the published picture, or of its enlarged copy."""
    score: float
    quarters: int = 0
    """How often the copy is turned counterclockwise."""


# A false area in a small copy is a large one in the picture: the score is higher there.
_BALANCED: Final = (
    _View(_FULL, 0.4),
    _View(640, 0.4),
    _View(320, 0.5),
    _View(160, 0.6),
    *(_View(640, 0.6, turns) for turns in _TURNS),
    *(_View(320, 0.75, turns) for turns in _TURNS),
)
_STRICT: Final = (*_BALANCED, *(_View(_FULL, 0.5, turns) for turns in _TURNS))
_SECOND: Final = (_View(_FULL, 0.25), _View(640, 0.25), _View(320, 0.25))
"""Views of the second network."""


class Faces:
    """Loaded once, asked for every picture."""

    def __init__(self, sensitivity: Sensitivity = "balanced") -> None:
        self._plan: list[tuple[Network, Sequence[_View]]] = [
            (YuNet(), _STRICT if sensitivity == "strict" else _BALANCED)
        ]
        if sensitivity == "strict":
            self._plan.append((CenterFace(), _SECOND))

    def find(self, pixels: Pixels) -> Sequence[Area]:
        """Every face, highest score first."""
        height, width = pixels.shape[:2]
        copies = _Copies(pixels)
        boxes = [
            found
            for network, views in self._plan
            for view in views
            for copy in copies.of(view.side)
            for found in [_look(network, copy, view, max(height, width) / max(copy.shape[:2]))]
        ]
        return [
            area
            for box in by_score(joined(np.concatenate(boxes)))
            if (area := _area(box, width, height)) is not None
        ]


class _Copies:
    """Copies of one picture; each is made once."""

    def __init__(self, pixels: Pixels) -> None:
        self._made = {max(pixels.shape[:2]): pixels}
        self._long_side = max(pixels.shape[:2])

    def of(self, side: int) -> Iterator[Pixels]:
        """The copy with this long side, if it is smaller than the picture; for `_FULL` the picture,
        and a larger copy of a small one."""
        if side == _FULL:
            yield self._made[self._long_side]
            if self._long_side < _ENLARGED_BELOW:
                yield self._copy(2 * self._long_side)
        elif side < self._long_side:
            yield self._copy(side)

    def _copy(self, side: int) -> Pixels:
        if side not in self._made:
            # From the next larger copy: reading the whole picture again costs more.
            source = self._made[min((s for s in self._made if s > side), default=self._long_side)]
            image = vips.from_pixels(source).resize(side / max(source.shape[:2]), kernel="linear")
            self._made[side] = image.numpy()
        return self._made[side]


def _look(network: Network, copy: Pixels, view: _View, scale: float) -> Boxes:
    """What the network sees in one view, in pixels of the picture."""
    height, width = copy.shape[:2]
    found = network.find(np.rot90(copy, view.quarters), view.score)
    boxes = turned(found, view.quarters, width, height)
    boxes[:, :4] *= scale
    return boxes


def _area(box: Boxes, width: int, height: int) -> Area | None:
    """The part of the box inside the picture."""
    left, top = max(0, int(np.floor(box[0]))), max(0, int(np.floor(box[1])))
    right, bottom = min(width, int(np.ceil(box[2]))), min(height, int(np.ceil(box[3])))
    if right <= left or bottom <= top:
        return None
    return Area(left, top, right - left, bottom - top, LABEL, round(float(box[4]), 3))
