"""Step 5, encode: WebP without any metadata, in a private file."""

import hashlib
import os
from pathlib import Path

from jobwire.handlers.photo import vips
from jobwire.handlers.photo.options import PhotoOptions
from jobwire.handlers.photo.picture import Picture, Pixels
from jobwire.handlers.photo.results import Photo


def encode(picture: Picture, options: PhotoOptions, target: Path) -> Photo:
    """Write the picture; returns what was written."""
    encoded = webp(picture.pixels, options)
    write_private(target, encoded)
    return Photo(
        file_size=len(encoded),
        sha256=hashlib.sha256(encoded).hexdigest(),
        width=picture.width,
        height=picture.height,
        original_width=picture.original_width,
        original_height=picture.original_height,
        hidden=picture.areas,
        hidden_part=picture.hidden_part,
        is_doubtful=picture.is_doubtful,
    )


def webp(pixels: Pixels, options: PhotoOptions) -> bytes:
    """The pixels as WebP, without EXIF, XMP, IPTC or a colour profile: they are sRGB."""
    image = vips.from_pixels(pixels)
    return image.webpsave_buffer(Q=options.quality, effort=options.effort, keep="none")


def write_private(target: Path, data: bytes) -> None:
    """Write a file that only we may read; never through a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(target, flags, 0o600), "wb") as file:  # noqa: PTH123 - of a descriptor
        file.write(data)
