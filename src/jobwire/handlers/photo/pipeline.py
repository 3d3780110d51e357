"""The pipeline: a photo's way from an uploaded file to the file to publish.

    validate → decode → detect → hide → encode

Run in a worker process (`worker.py`), one photo at a time. Each step is a function in a file of its
own; whatever fails in a step fails the photo with that step's code.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from jobwire.handlers.photo.compare import write_comparison
from jobwire.handlers.photo.decode import decode
from jobwire.handlers.photo.detect import detect
from jobwire.handlers.photo.detectors import Detector
from jobwire.handlers.photo.encode import encode
from jobwire.handlers.photo.errors import FAILURES, PhotoError
from jobwire.handlers.photo.hide import hide
from jobwire.handlers.photo.options import PhotoOptions
from jobwire.handlers.photo.results import Photo, Step
from jobwire.handlers.photo.validate import validate


def process(
    source: Path,
    target: Path,
    options: PhotoOptions,
    detectors: Mapping[str, Detector],
    *,
    report: Callable[[Step], None],
    comparison: Path | None = None,
) -> Photo:
    """Write `target` from `source`; PhotoError names the failed step. `report` is called
    when a step begins."""

    @contextmanager
    def step(name: Step) -> Generator[None]:
        report(name)
        try:
            yield
        except PhotoError:
            raise
        except Exception as error:
            code, message = FAILURES[name]
            detail = f"{type(error).__name__}: {error}"
            raise PhotoError(code, message, detail=detail) from error

    with step(Step.VALIDATE):
        upload = validate(_read(source, options), options)
    with step(Step.DECODE):
        picture = decode(upload, options)
    with step(Step.DETECT):
        found = detect(picture, options, detectors)
    with step(Step.HIDE):
        hidden = hide(found, options)
    with step(Step.ENCODE):
        if comparison is not None:
            write_comparison(picture, hidden, options, comparison)
        return encode(hidden, options, target)


def _read(source: Path, options: PhotoOptions) -> bytes:
    """The file, or so much of it that it is seen to be too long."""
    with source.open("rb") as file:
        return file.read(options.max_bytes + 1)
