"""CPU and memory of one photo: the pool of workers beside a bare pyvips loop with the same detector
and a plain Pillow handler, with and without detection, at 3, 12 and 50 megapixels (Q-6, I-36).

The limits: CPU of a photo at most 1.25 times the bare loop's; peak memory of the pool within its
budget: the workers' own share, and the budget for pixels.
"""

import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench.measure import Row, in_process, medians

_ROUNDS: Final = 3
_SIZES: Final = {"3 MP": (2000, 1500), "12 MP": (4032, 3024), "50 MP": (8160, 6120)}
_WAYS: Final = ("bare", "jobwire", "pillow")
_BAR: Final = 1.25
_WORKER_MIB: Final = 512
"""A worker with its libraries, the detector at its largest picture included."""
_PIXELS_MIB: Final = 512
"""The pool's default budget for pixels."""


def run() -> bool:
    """Measure and print; return whether all limits are met."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: portrait_file(Path(folder), name, *size) for name, size in _SIZES.items()}
        files["50 MP progressive"] = portrait_file(
            Path(folder), "50 MP progressive", *_SIZES["50 MP"], interlace=True
        )
        measured: dict[tuple[str, str, str], list[Row]] = {}
        for _ in range(_ROUNDS):
            for name, file in files.items():
                for detection in ("faces", "none"):
                    for way in _WAYS:
                        row = in_process(
                            "bench.photo_peer", way, detection, str(file), timeout_s=300
                        )
                        measured.setdefault((name, detection, way), []).append(row)
    return _report({key: medians(rows) for key, rows in measured.items()}, list(files))


def _report(found: dict[tuple[str, str, str], Row], names: list[str]) -> bool:
    print("| photo, detection | " + " | ".join(f"{way}: ms, MiB" for way in _WAYS) + " | ratio |")
    print("|---|" + "---|" * (len(_WAYS) + 1))
    is_met = True
    for name in names:
        for detection in ("faces", "none"):
            rows = {way: found[name, detection, way] for way in _WAYS}
            ratio = rows["jobwire"]["cpu_ms"] / rows["bare"]["cpu_ms"]
            cells = [f"{row['cpu_ms']:.0f}, {row['peak_mib']:.0f}" for row in rows.values()]
            fits = rows["jobwire"]["workers_mib"] <= _WORKER_MIB + _PIXELS_MIB
            is_met = is_met and ratio <= _BAR and fits
            print(f"| {name}, {detection} | {' | '.join(cells)} | {ratio:.2f} |")
    print(f"bar: {_BAR} of bare; a worker within {_WORKER_MIB} + {_PIXELS_MIB} MiB")
    return is_met


def portrait_file(folder: Path, name: str, width: int, height: int, **options: object) -> Path:
    """A portrait of that size, with the noise of a camera."""
    spec = find_spec("skimage")
    assert spec is not None, "scikit-image is not installed; run: make test"
    assert spec.origin is not None
    vips: Any = import_module("pyvips")
    portrait = Path(spec.origin).with_name("data") / "astronaut.png"
    large: npt.NDArray[np.uint8] = vips.Image.thumbnail(
        str(portrait), width, height=height, size="force"
    ).numpy()
    noise = np.random.default_rng(1).normal(0, 3, large.shape[:2])[:, :, np.newaxis]
    pixels = (large + noise).clip(0, 255).astype(np.uint8)
    file = folder / f"{name}.jpg"
    vips.Image.new_from_array(pixels).copy(interpretation="srgb").jpegsave(
        str(file), Q=85, **options
    )
    return file
