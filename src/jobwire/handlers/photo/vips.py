"""libvips, set up for untrusted files: four loaders, one thread, no cache.

Loaded by `decode` and `encode`, in worker processes only: a process that has used libvips must
never fork.
"""

import os
from functools import cache
from importlib import import_module
from typing import Final, Protocol, cast

import numpy as np

from jobwire.handlers.photo.library import library
from jobwire.handlers.photo.picture import Pixels

_LOADERS: Final = (
    *("VipsForeignLoadJpeg", "VipsForeignLoadPng", "VipsForeignLoadWebp"),
    "VipsForeignLoadHeif",  # of AVIF
)
_PROFILE: Final = "icc-profile-data"


class VipsImage(Protocol):
    """What we use of a libvips image."""

    width: int
    height: int
    bands: int

    def get_typeof(self, name: str) -> int: ...
    def get(self, name: str) -> object: ...
    def colourspace(self, space: str) -> "VipsImage": ...
    def cast(self, format: str) -> "VipsImage": ...  # noqa: A002 - the library's name
    def resize(self, scale: float, *, kernel: str) -> "VipsImage": ...
    def copy(self, *, interpretation: str) -> "VipsImage": ...
    def set_type(self, kind: object, name: str, value: object) -> None: ...
    def thumbnail_image(self, width: int, **options: object) -> "VipsImage": ...
    def numpy(self) -> Pixels: ...
    def webpsave_buffer(self, **options: object) -> bytes: ...


class VipsImages(Protocol):
    """The library's ways to make an image."""

    def new_from_buffer(self, data: bytes, options: str, **more: object) -> VipsImage: ...
    def new_from_memory(
        self,
        data: Pixels,
        width: int,
        height: int,
        bands: int,
        format: str,  # noqa: A002
    ) -> VipsImage: ...
    def thumbnail_buffer(self, data: bytes, width: int, **options: object) -> VipsImage: ...


@cache
def images() -> VipsImages:
    """The library, ready for use."""
    os.environ["VIPS_CONCURRENCY"] = "1"  # read when the library is loaded
    os.environ["VIPS_BLOCK_UNTRUSTED"] = "1"
    pyvips = library("pyvips")
    # Its handler runs Python for each warning of the library. Garbage collected there may be an
    # image that warns as it is closed, and GLib ends a process that warns while it warns.
    pyvips._remove_log_handler()  # noqa: SLF001 - what the package itself calls at its end
    pyvips.cache_set_max(0)  # no operation is asked for twice
    pyvips.operation_block_set("VipsForeignLoad", True)
    for loader in _LOADERS:
        pyvips.operation_block_set(loader, False)
    return cast(VipsImages, pyvips.Image)


def from_pixels(pixels: Pixels, profile: bytes = b"") -> VipsImage:
    """An image of the library with these pixels, and with a colour profile."""
    height, width, bands = pixels.shape
    whole = np.ascontiguousarray(pixels)
    image = images().new_from_memory(whole, width, height, bands, "uchar")
    image = image.copy(interpretation="srgb" if bands > 2 else "b-w")
    if profile:
        image.set_type(import_module("pyvips").GValue.blob_type, _PROFILE, profile)
    return image


def has_profile(image: VipsImage) -> bool:
    """Whether the image has a colour profile of its own."""
    return image.get_typeof(_PROFILE) != 0
