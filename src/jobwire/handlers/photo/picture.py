"""Values that go from step to step: the uploaded bytes, then the pixels."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from jobwire.handlers.photo.header import PhotoHeader
from jobwire.handlers.photo.results import Area

Pixels = npt.NDArray[np.uint8]
"""Rows × columns × bands; three bands of sRGB, or four with alpha."""
Mask = npt.NDArray[np.bool_]


def on_grey(pixels: Pixels, grey: int) -> Pixels:
    """The pixels without alpha, as a viewer shows them on a grey: 255 is white."""
    if pixels.shape[2] == 3:
        return pixels
    alpha = pixels[:, :, 3:].astype(np.float32) / 255
    return (pixels[:, :, :3] * alpha + grey * (1 - alpha)).round().astype(np.uint8)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that passed validation."""

    data: bytes = field(repr=False)
    header: PhotoHeader


@dataclass(frozen=True, slots=True)
class Picture:
    """Decoded: upright, sRGB, at the size to publish. `areas` grows with detection."""

    pixels: Pixels = field(repr=False)
    original_width: int
    original_height: int
    areas: tuple[Area, ...] = ()
    is_doubtful: bool = False
    """Whether an area is not certain, hidden or not."""
    hidden_part: float = 0.0
    """The part of its pixels that is hidden."""

    @property
    def width(self) -> int:
        return self.pixels.shape[1]

    @property
    def height(self) -> int:
        return self.pixels.shape[0]
