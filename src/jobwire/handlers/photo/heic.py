"""HEIC decoded with `pi-heif` (libde265): the library of pyvips reads its header and no pixels.

Only in worker processes, like libvips. Turns, mirroring and cropping are applied by the library; an
orientation in EXIF has no meaning in this format.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from jobwire.handlers.photo import vips
from jobwire.handlers.photo.errors import ErrorCode, PhotoError


def load(data: bytes) -> vips.VipsImage:
    """The main picture of the file, upright, with 8 bits a band."""
    if find_spec("pi_heif") is None:
        raise PhotoError(
            ErrorCode.VALIDATION_FAILED,
            "HEIC photos are not read here; send a JPEG",
            detail="run: pip install 'jobwire[heic]'",
        )
    library: Any = import_module("pi_heif")
    file = library.open_heif(data, convert_hdr_to_8bit=True)
    image = file[file.primary_index]
    width, height = image.size
    bands = len(image.mode)
    rows = np.frombuffer(image.data, np.uint8).reshape(height, -1)
    # A copy: the library frees its memory together with `file`.
    pixels = rows[:, : width * bands].copy().reshape(height, width, bands)
    return vips.from_pixels(pixels, profile=image.info.get("icc_profile") or b"")
