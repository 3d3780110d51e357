"""Step 3, detect: every detector looks at the pixels that will be published."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, get_args

from jobwire.handlers.photo.detectors import Detector
from jobwire.handlers.photo.options import DrawnArea, PhotoOptions
from jobwire.handlers.photo.picture import Picture, Pixels, on_grey
from jobwire.handlers.photo.results import Area, Certainty

DRAWN = "drawn"
"""The label of an area that a person has drawn."""
_CERTAINTIES: Final[Sequence[Certainty]] = get_args(Certainty)


def detect(picture: Picture, options: PhotoOptions, detectors: Mapping[str, Detector]) -> Picture:
    """The same picture with the areas to hide."""
    areas = [_drawn(area, picture) for area in options.areas]
    for view in _views(picture.pixels):
        for name in options.detect:
            areas += detectors[name].find(view)
    hidden = _CERTAINTIES[: _CERTAINTIES.index(options.hide_from) + 1]
    return replace(
        picture,
        areas=tuple(area for area in areas if area.certainty in hidden),
        is_doubtful=any(area.certainty != "sure" for area in areas),
    )


def _drawn(area: DrawnArea, picture: Picture) -> Area:
    """At least one pixel inside of the picture."""
    left = min(int(area.left * picture.width), picture.width - 1)
    top = min(int(area.top * picture.height), picture.height - 1)
    right = min(picture.width, math.ceil((area.left + area.width) * picture.width))
    bottom = min(picture.height, math.ceil((area.top + area.height) * picture.height))
    return Area(left, top, max(1, right - left), max(1, bottom - top), DRAWN)


def _views(pixels: Pixels) -> list[Pixels]:
    """The picture as others will see it. With alpha there are three views: on white, on black, and
    the bare colours, which a program that ignores alpha shows."""
    if pixels.shape[2] == 3:
        return [pixels]
    return [on_grey(pixels, 255), on_grey(pixels, 0), pixels[:, :, :3]]
