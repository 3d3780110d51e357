"""Photos made fit to publish: upright, sRGB, without metadata, faces hidden, as WebP.

    pipeline.py   the steps in order: validate → decode → detect → hide → encode, a file each
    pool.py       worker processes that run it, and what the rest of the program calls
    worker.py     the program that such a process runs; process.py: the pool's side of it
    detectors/    what finds the areas to hide, by name

No uploaded file is decoded in the caller's process.
"""

from jobwire.handlers.photo.errors import ErrorCode, PhotoError, PoolFull, SetupError
from jobwire.handlers.photo.options import PhotoOptions, PoolLimits
from jobwire.handlers.photo.pool import PhotoPool
from jobwire.handlers.photo.results import Area, Photo, Step

__all__ = [
    "Area",
    "ErrorCode",
    "Photo",
    "PhotoError",
    "PhotoOptions",
    "PhotoPool",
    "PoolFull",
    "PoolLimits",
    "SetupError",
    "Step",
]
