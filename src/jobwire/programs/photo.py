"""The photo pipeline, for `jobwire images`."""

from jobwire.handlers.photo import (
    Photo,
    PhotoError,
    PhotoOptions,
    PhotoPool,
    PoolLimits,
    SetupError,
    Step,
)

__all__ = [
    "Photo",
    "PhotoError",
    "PhotoOptions",
    "PhotoPool",
    "PoolLimits",
    "SetupError",
    "Step",
]
