"""What is done to a photo (`PhotoOptions`), and what the pool may use (`PoolLimits`)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from jobwire.handlers.photo.results import Certainty
from jobwire.spawn import usable_cores

MEGABYTE: Final = 1 << 20
MEGAPIXEL: Final = 1_000_000
BYTES_PER_PIXEL: Final = 4
"""What a decoded pixel is counted as."""

Fill = Literal["surroundings", "grey"]
Sensitivity = Literal["balanced", "strict"]


@dataclass(frozen=True, slots=True)
class DrawnArea:
    """An area that a person has drawn, in parts of the upright picture's width and height."""

    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoOptions:
    """Bounds of the input and form of the output; sent to the worker with each photo."""

    detect: tuple[str, ...] = ("faces",)
    """Detectors by name, or as `package.module:factory`. Empty: nothing is hidden."""
    sensitivity: Sensitivity = "balanced"
    """How hard the detector `faces` looks; `strict` finds more, for several times the CPU."""
    hide_from: Certainty = "doubtful"
    """The least certain areas that are hidden."""
    areas: tuple[DrawnArea, ...] = ()
    """Hidden besides what is detected."""
    fill: Fill = "surroundings"
    """What a hidden area is filled with."""
    long_side: int = 1920
    """Width and height of the output are at most this."""
    quality: int = 80
    effort: int = 4
    """Of the WebP encoder, 0 to 6: more CPU, fewer bytes."""

    content_type: str = ""
    """What the file was declared as; another type is refused. Empty: any allowed type."""
    max_bytes: int = 10 * MEGABYTE
    max_megapixels: float = 64.0
    max_side: int = 16_383
    max_scans: int = 64
    """Of a progressive JPEG: each scan costs a pass over the whole picture."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: the field, and what is wrong with it."""
        if not 16 <= self.long_side <= 2560:
            # The detector sees the picture at this size, and needs about 100 bytes a pixel.
            yield "long_side", "must be between 16 and 2560"
        if not 1 <= self.quality <= 100:
            yield "quality", "must be between 1 and 100"
        if not 0 <= self.effort <= 6:
            yield "effort", "must be between 0 and 6"
        for name in ("max_bytes", "max_megapixels", "max_side", "max_scans"):
            if getattr(self, name) <= 0:
                yield name, "must be more than 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """How much of the machine the pool may use."""

    workers: int = 0
    """Worker processes, each with one photo at a time; 0: one per core."""
    max_waiting: int = 64
    """Photos that may wait for a worker; one more is refused."""
    pixel_budget_mb: int = 512
    """Decoded pixels of all photos in progress together."""
    worker_memory_mb: int = 1536
    """Address space of one worker. Detection alone needs 1000."""
    cpu_limit_s: int = 20
    """CPU time of one photo; the kernel ends the worker that needs more."""
    deadline_s: float = 60.0
    """Wall time of one photo, once it is being processed; the pool kills the worker."""
    photos_per_worker: int = 500
    """A worker is replaced after so many."""

    @property
    def worker_count(self) -> int:
        return self.workers or usable_cores()

    def check(self, options: PhotoOptions) -> Iterator[tuple[str, str]]:
        """Yield each fault: the field, and what is wrong with it."""
        if self.workers < 0:
            yield "workers", "must not be negative"
        if self.max_waiting < 0:
            yield "max_waiting", "must not be negative"
        for name in ("worker_memory_mb", "cpu_limit_s", "deadline_s", "photos_per_worker"):
            if getattr(self, name) <= 0:
                yield name, "must be more than 0"
        largest = options.max_megapixels * MEGAPIXEL * BYTES_PER_PIXEL * 2
        if self.pixel_budget_mb * MEGABYTE < largest:
            needed = -int(-largest // MEGABYTE)
            # A photo that is allowed and never fits would wait forever.
            yield "pixel_budget_mb", f"must be at least {needed} for {options.max_megapixels:g} MP"
