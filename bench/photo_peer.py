"""`python -m bench.photo_peer WAY DETECTION FILE`: a few photos one way, in a fresh process.

The last line has the CPU of one photo and the peak memory. Loading is not counted as CPU.
"""

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.measure import cpu_s
from jobwire.handlers.photo import PhotoOptions, PhotoPool, PoolLimits
from jobwire.handlers.photo.detectors import load
from jobwire.handlers.photo.picture import Pixels
from jobwire.handlers.photo.results import Area

_PHOTOS: Final = 4
_SIDE: Final = 1920
_OPTIONS: Final = PhotoOptions(max_bytes=100 << 20)


def _peak_mib(pid: int) -> float:
    """Peak memory since the program began; that of `getrusage` is inherited from the parent."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def _alone(work: Callable[[], object]) -> dict[str, float]:
    """Measure a method that runs in this process."""
    work()
    before_s = time.process_time()
    for _ in range(_PHOTOS):
        work()
    cpu_ms = (time.process_time() - before_s) / _PHOTOS * 1000
    return {"cpu_ms": cpu_ms, "peak_mib": _peak_mib(os.getpid())}


async def _jobwire(file: Path, target: Path, detect: tuple[str, ...]) -> dict[str, float]:
    options = PhotoOptions(detect=detect, max_bytes=_OPTIONS.max_bytes)
    async with PhotoPool(PoolLimits(workers=1), options) as pool:
        await pool.process(file, target)
        (worker,) = pool.pids
        before_s = cpu_s(worker) + time.process_time()
        for _ in range(_PHOTOS):
            await pool.process(file, target)
        used_s = cpu_s(worker) + time.process_time() - before_s
        workers_mib = _peak_mib(worker)
        own_mib = _peak_mib(os.getpid())
    return {
        "cpu_ms": used_s / _PHOTOS * 1000,
        "peak_mib": workers_mib + own_mib,
        "workers_mib": workers_mib,
    }


def _covered(pixels: Pixels, areas: list[Area]) -> Pixels:
    """Hide areas with grey rectangles."""
    pixels = pixels.copy()
    for area in areas:
        pixels[area.top : area.bottom, area.left : area.right] = 128
    return pixels


def _bare(file: Path, target: Path, detect: tuple[str, ...]) -> Callable[[], object]:
    """Minimal code for the same picture: no checks, no separate process."""
    vips: Any = import_module("pyvips")
    vips.cache_set_max(0)
    vips.concurrency_set(1)
    detectors = [load(name) for name in detect]

    def work() -> None:
        image = vips.Image.thumbnail(str(file), _SIDE, height=_SIDE, size="down")
        pixels = image.colourspace("srgb").numpy()
        areas = [area for each in detectors for area in each.find(pixels)]
        pixels = _covered(pixels, areas)
        made = vips.Image.new_from_array(np.ascontiguousarray(pixels))
        made.copy(interpretation="srgb").webpsave(str(target), Q=80, effort=4, keep="none")

    return work


def _pillow(file: Path, target: Path, detect: tuple[str, ...]) -> Callable[[], object]:
    """As a handler is written with Pillow, with its quick way to decode a smaller JPEG."""
    images: Any = import_module("PIL.Image")
    ops: Any = import_module("PIL.ImageOps")
    detectors = [load(name) for name in detect]

    def work() -> None:
        with images.open(file) as image:
            image.draft("RGB", (_SIDE, _SIDE))
            small = ops.exif_transpose(image).convert("RGB")
            small.thumbnail((_SIDE, _SIDE))
        pixels = np.asarray(small)
        areas = [area for each in detectors for area in each.find(pixels)]
        pixels = _covered(pixels, areas)
        images.fromarray(pixels).save(target, "WEBP", quality=80, method=4)

    return work


def main(way: str, detection: str, name: str) -> dict[str, float]:
    detect = () if detection == "none" else (detection,)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out.webp"
        if way == "jobwire":
            return asyncio.run(_jobwire(Path(name), target, detect))
        make = _bare if way == "bare" else _pillow
        return _alone(make(Path(name), target, detect))


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
