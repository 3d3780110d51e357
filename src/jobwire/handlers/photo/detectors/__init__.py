"""Detectors: each finds one kind of thing that must not be published.

A detector is an object with one method; it is chosen by name in `PhotoOptions.detect`:

    faces                       a name of the table below
    mypackage.plates:Plates     any other: a function without arguments that makes the detector

It is loaded once in each worker process. An exception fails the photo (`DETECTION_FAILED`): a
photo is never published because looking for faces went wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast

from jobwire.handlers.photo.errors import SetupError
from jobwire.handlers.photo.options import Sensitivity
from jobwire.handlers.photo.results import Area

if TYPE_CHECKING:
    from jobwire.handlers.photo.picture import Pixels

BUILT_IN: Final[Mapping[str, str]] = {
    "faces": "jobwire.handlers.photo.detectors.faces:Faces",
}


class Detector(Protocol):
    """Finds areas in an upright sRGB picture of three bands."""

    def find(self, pixels: "Pixels") -> Sequence[Area]:
        """Every area, as tight as it is known; padding is added when it is hidden."""
        ...


def load(name: str, sensitivity: Sensitivity = "balanced") -> Detector:
    """The detector of that name; SetupError where there is none or it lacks something."""
    if name in BUILT_IN:
        return _factory(BUILT_IN[name])(sensitivity)
    if ":" not in name:
        known = ", ".join(BUILT_IN)
        raise SetupError(
            f"no detector {name!r}; there are: {known}, or give one as package.module:factory"
        )
    try:
        make = _factory(name)
    except (ImportError, AttributeError) as error:
        raise SetupError(f"the detector {name!r} cannot be loaded: {error}") from error
    return make()


def _factory(path: str) -> "Callable[..., Detector]":
    module, _, attribute = path.partition(":")
    return cast("Callable[..., Detector]", getattr(import_module(module), attribute))
