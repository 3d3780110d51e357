"""Step 3, detect: every detector looks at the pixels that will be published."""

from collections.abc import Mapping
from dataclasses import replace

from jobwire.handlers.photo.detectors import Detector
from jobwire.handlers.photo.options import PhotoOptions
from jobwire.handlers.photo.picture import Picture, Pixels, on_grey
from jobwire.handlers.photo.results import Area


def detect(picture: Picture, options: PhotoOptions, detectors: Mapping[str, Detector]) -> Picture:
    """The same picture with the areas to hide."""
    areas: list[Area] = []
    for view in _views(picture.pixels):
        for name in options.detect:
            areas += detectors[name].find(view)
    return replace(picture, areas=tuple(areas))


def _views(pixels: Pixels) -> list[Pixels]:
    """The picture as others will see it. With alpha there are three views: on white, on black, and
    the bare colours, which a program that ignores alpha shows."""
    if pixels.shape[2] == 3:
        return [pixels]
    return [on_grey(pixels, 255), on_grey(pixels, 0), pixels[:, :, :3]]
