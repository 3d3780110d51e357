"""Values that go from step to step: the uploaded bytes, then the pixels."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from jobwire.handlers.photo.header import Header
from jobwire.handlers.photo.results import Area

Pixels = npt.NDArray[np.uint8]
"""Rows × columns × bands; three bands of sRGB, or four with alpha."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that passed validation."""

    data: bytes = field(repr=False)
    header: Header


@dataclass(frozen=True, slots=True)
class Picture:
    """Decoded: upright, sRGB, at the size to publish. `areas` grows with detection."""

    pixels: Pixels = field(repr=False)
    original_width: int
    original_height: int
    areas: tuple[Area, ...] = ()

    @property
    def width(self) -> int:
        return self.pixels.shape[1]

    @property
    def height(self) -> int:
        return self.pixels.shape[0]
