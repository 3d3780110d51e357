"""Step 2, decode: upright, in sRGB, shrunk to the size to publish, without metadata.

The picture is whole or refused: a file that ends early is an error, never a half-grey photo.
"""

import numpy as np

from jobwire.handlers.photo import vips
from jobwire.handlers.photo.errors import ErrorCode, PhotoError
from jobwire.handlers.photo.options import PhotoOptions
from jobwire.handlers.photo.picture import Picture, Upload

_SIDEWAYS = frozenset({5, 6, 7, 8})
"""Values of the EXIF orientation that swap width and height."""


def decode(upload: Upload, options: PhotoOptions) -> Picture:
    """The pixels to publish, before anything is hidden."""
    library = vips.images()
    stored = library.new_from_buffer(upload.data, "", access="sequential")
    header = upload.header
    if (stored.width, stored.height) != (header.width, header.height):
        # Memory was reserved for the size in the header.
        raise PhotoError(
            ErrorCode.DECODE_FAILED, "the photo does not match its own header; save it again"
        )
    has_profile = stored.get_typeof("icc-profile-data") != 0
    image = library.thumbnail_buffer(
        upload.data,
        options.long_side,
        height=options.long_side,
        size="down",
        # As a load option: the argument `fail_on` of this operation has no effect.
        option_string="[fail_on=truncated]",
        # Without an embedded profile this conversion changes nothing and costs four times more.
        **({"output_profile": "srgb"} if has_profile else {}),
    )
    pixels = image.colourspace("srgb").cast("uchar").numpy()
    if pixels.ndim == 2:
        pixels = pixels[:, :, np.newaxis]
    return Picture(_without_invisible(pixels), *_upright_size(stored))


def _without_invisible(pixels: vips.Pixels) -> vips.Pixels:
    """Colours under full transparency are white: invisible content must not be published."""
    if pixels.shape[2] == 4:
        pixels = pixels.copy()
        if pixels[:, :, 3].min() == 255:
            return pixels[:, :, :3]
        pixels[pixels[:, :, 3] == 0, :3] = 255
    return pixels


def _upright_size(stored: vips.VipsImage) -> tuple[int, int]:
    turned = stored.get_typeof("orientation") != 0 and stored.get("orientation") in _SIDEWAYS
    return (stored.height, stored.width) if turned else (stored.width, stored.height)
