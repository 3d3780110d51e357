"""Step 2, decode: upright, in sRGB, shrunk to the size to publish, without metadata.

The picture is whole or refused: a file that ends early is an error, never a half-grey photo.
"""

import numpy as np

from jobwire.handlers.photo import heic, vips
from jobwire.handlers.photo.errors import ErrorCode, PhotoError
from jobwire.handlers.photo.header import PhotoHeader
from jobwire.handlers.photo.options import PhotoOptions
from jobwire.handlers.photo.picture import Picture, Upload

_SIDEWAYS = frozenset({5, 6, 7, 8})
"""Values of the EXIF orientation that swap width and height."""


def decode(upload: Upload, options: PhotoOptions) -> Picture:
    """The pixels to publish, before anything is hidden."""
    stored = _stored(upload)
    _check_size(stored, upload.header)
    form: dict[str, object] = {"height": options.long_side, "size": "down"}
    if vips.has_profile(stored):
        # Without an embedded profile this conversion changes nothing and costs four times more.
        form["output_profile"] = "srgb"
    if upload.header.format == "heic":
        image = stored.thumbnail_image(options.long_side, **form)
    else:
        # `fail_on` as a load option: the argument of this operation has no effect.
        image = vips.images().thumbnail_buffer(
            upload.data, options.long_side, option_string="[fail_on=truncated]", **form
        )
    pixels = image.colourspace("srgb").cast("uchar").numpy()
    if pixels.ndim == 2:
        pixels = pixels[:, :, np.newaxis]
    return Picture(_without_invisible(pixels), *_upright_size(stored))


def _stored(upload: Upload) -> vips.VipsImage:
    """The picture as the file has it. Nothing is decoded, except of a HEIC."""
    if upload.header.format == "heic":
        return heic.load(upload.data)
    return vips.images().new_from_buffer(upload.data, "", access="sequential")


def _check_size(stored: vips.VipsImage, header: PhotoHeader) -> None:
    """Memory was reserved for the size in the header. AVIF and HEIC are turned and cropped by
    their library."""
    if header.format in ("avif", "heic"):
        fits = stored.width * stored.height <= header.pixels
    else:
        fits = (stored.width, stored.height) == (header.width, header.height)
    if not fits:
        raise PhotoError(
            ErrorCode.DECODE_FAILED, "the photo does not match its own header; save it again"
        )


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
