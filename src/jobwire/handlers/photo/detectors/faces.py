"""The detector `faces`: two networks look at several views of a picture.

A network sees faces of 10 to 300 pixels. So YuNet looks at the pixels that will be published, at
smaller copies for large faces, at a larger copy of a small picture, and at turned copies, and
CenterFace at a small copy. A weak sign counts if both have seen it, a strong one alone.

If both are sure of one face, or much is found, there are people in the picture: weaker signs count,
too, and all of it is taken for faces. Otherwise each find gets a second look (`second_look.py`);
one that is certain then is a face, and again there are people.

`strict` takes weak signs in every picture, turns the full size, too, and has CenterFace look at
every size.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from jobwire.handlers.photo import vips
from jobwire.handlers.photo.detectors.boxes import Boxes, by_score, joined, strongest
from jobwire.handlers.photo.detectors.centerface import CenterFace
from jobwire.handlers.photo.detectors.network import Network, find_turned
from jobwire.handlers.photo.detectors.second_look import SecondLook
from jobwire.handlers.photo.detectors.yunet import YuNet
from jobwire.handlers.photo.options import Sensitivity
from jobwire.handlers.photo.picture import Pixels
from jobwire.handlers.photo.results import Area, Certainty

LABEL: Final = "face"
_ENLARGED_BELOW: Final = 960
"""Long side of pictures that are looked at twice as large, too."""
_FULL: Final = 0
_SMALL: Final = 1
_ALONE, _BESIDE, _QUARTERS = 5, 6, 7
"""Columns of boxes."""
_SMALL_SIDE: Final = 640
_TURNS: Final = (1, 2, 3)


class _View(NamedTuple):
    side: int
    """The long side; `_FULL`: of the published picture, and of its enlarged copy; or `_SMALL`:
    of a small copy, or of the picture if that is smaller."""
    alone: float
    """What has this score counts."""
    beside: float
    """What has this score counts in a picture with people."""
    floor: float
    """What has this score counts if the other network has seen it, too."""
    quarters: int = 0
    """How often the copy is turned counterclockwise."""


# A false area in a small copy is a large one in the picture: the score is higher there.
_BALANCED: Final = (
    _View(_FULL, 0.6, 0.4, 0.3),
    _View(640, 0.6, 0.4, 0.3),
    _View(320, 0.6, 0.5, 0.3),
    _View(160, 0.7, 0.6, 0.3),
    *(_View(640, 0.75, 0.6, 0.4, turns) for turns in _TURNS),
    *(_View(320, 0.85, 0.75, 0.5, turns) for turns in _TURNS),
)
_STRICT: Final = (
    *(view._replace(alone=view.beside) for view in _BALANCED),
    *(_View(_FULL, 0.5, 0.5, 0.4, turns) for turns in _TURNS),
)
_SECOND: Final = (_View(_SMALL, 0.25, 0.25, 0.15),)
_SECOND_STRICT: Final = tuple(_View(side, 0.25, 0.25, 0.15) for side in (_FULL, 640, 320))
"""Views of the second network."""
_CERTAIN: Final = 1.3
"""The scores of both networks together, of 2: that is a face."""
_MANY: Final = 6
"""So much is found in a crowd, and hardly ever where nobody is."""


class Faces:
    """Loaded once, asked for every picture."""

    def __init__(self, sensitivity: Sensitivity = "balanced") -> None:
        is_strict = sensitivity == "strict"
        self._first, self._second = YuNet(), CenterFace()
        self._first_views = _STRICT if is_strict else _BALANCED
        self._second_views = _SECOND_STRICT if is_strict else _SECOND
        self._second_look = SecondLook(self._second, is_strict=is_strict)

    def find(self, pixels: Pixels) -> Sequence[Area]:
        """Every face, highest score first, and what may be none."""
        copies = _Copies(pixels)
        first = _seen(self._first, self._first_views, copies)
        second = _seen(self._second, self._second_views, copies)
        boxes = _counted(first, second, _ALONE)
        certainties: list[Certainty] = ["sure"] * len(boxes)
        has_people = len(boxes) >= _MANY or _have_agreed(first, second)
        if not has_people:
            certainties = [
                self._second_look.certainty(pixels, box, float(score), int(box[_QUARTERS]))
                for box, score in zip(boxes, strongest(second, boxes), strict=True)
            ]
            has_people = "sure" in certainties
        if has_people:
            boxes = _counted(first, second, _BESIDE)
            certainties = ["sure"] * len(boxes)
        return [
            area
            for box, certainty in zip(boxes, certainties, strict=True)
            if (area := _area(box, pixels, certainty)) is not None
        ]


def _have_agreed(first: Boxes, second: Boxes) -> bool:
    """Whether both networks are certain of one face."""
    return bool((first[:, 4] + strongest(second, first)).max(initial=0) >= _CERTAIN)


def _counted(first: Boxes, second: Boxes, needed: int) -> Boxes:
    """A box for each face, highest score first: of what has the score in the column `needed`, or
    was seen by both networks."""
    counted = [
        seen[(seen[:, 4] >= seen[:, needed]) | (strongest(others, seen) > 0)]
        for seen, others in ((first, second), (second, first))
    ]
    return by_score(joined(np.concatenate(counted)))


class _Copies:
    """Copies of one picture; each is made once."""

    def __init__(self, pixels: Pixels) -> None:
        self._made = {max(pixels.shape[:2]): pixels}
        self.long_side = max(pixels.shape[:2])

    def of(self, side: int) -> Iterator[Pixels]:
        """The copy with this long side, if it is smaller than the picture; for `_FULL` the picture,
        and a larger copy of a small one."""
        if side == _FULL:
            yield self._made[self.long_side]
            if self.long_side < _ENLARGED_BELOW:
                yield self._copy(2 * self.long_side)
        elif side == _SMALL:
            yield self._copy(min(_SMALL_SIDE, self.long_side))
        elif side < self.long_side:
            yield self._copy(side)

    def _copy(self, side: int) -> Pixels:
        if side not in self._made:
            # From the next larger copy: reading the whole picture again costs more.
            source = self._made[min((s for s in self._made if s > side), default=self.long_side)]
            image = vips.from_pixels(source).resize(side / max(source.shape[:2]), kernel="linear")
            self._made[side] = image.numpy()
        return self._made[side]


def _seen(network: Network, views: Sequence[_View], copies: _Copies) -> Boxes:
    """What the network sees in its views, in pixels of the picture. Columns behind the score tell
    about the view: `_ALONE`, `_BESIDE`, `_QUARTERS`."""
    seen: list[Boxes] = []
    for view in views:
        for copy in copies.of(view.side):
            boxes = find_turned(network, copy, view.quarters, view.floor)
            boxes[:, :4] *= copies.long_side / max(copy.shape[:2])
            columns = (view.alone, view.beside, view.quarters)
            more = np.full((len(boxes), len(columns)), columns, np.float32)
            seen.append(np.hstack([boxes, more]))
    return np.concatenate(seen)


def _area(box: Boxes, pixels: Pixels, certainty: Certainty) -> Area | None:
    """The part of the box inside the picture."""
    height, width = pixels.shape[:2]
    left, top = max(0, int(np.floor(box[0]))), max(0, int(np.floor(box[1])))
    right, bottom = min(width, int(np.ceil(box[2]))), min(height, int(np.ceil(box[3])))
    if right <= left or bottom <= top:
        return None
    score = round(float(box[4]), 3)
    return Area(left, top, right - left, bottom - top, LABEL, score, certainty)
