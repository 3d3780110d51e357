"""A network on onnxruntime that takes pictures of any size."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, cast

import numpy as np
import numpy.typing as npt

from jobwire.handlers.photo.detectors.boxes import Boxes, turned
from jobwire.handlers.photo.detectors.onnx_shapes import without_shapes
from jobwire.handlers.photo.library import library
from jobwire.handlers.photo.picture import Pixels

Floats = npt.NDArray[np.float32]
_MULTIPLE: Final = 32
"""Width and height of what a network sees are multiples of its largest stride."""


class Network(Protocol):
    """Finds faces of about 10 to 300 pixels."""

    def find(self, pixels: Pixels, score: float) -> Boxes:
        """Every face with this score at least."""
        ...


def find_turned(network: Network, pixels: Pixels, quarters: int, score: float) -> Boxes:
    """What the network finds in the picture turned counterclockwise, where it is in this one."""
    height, width = pixels.shape[:2]
    return turned(network.find(np.rot90(pixels, quarters), score), quarters, width, height)


class Session(Protocol):
    """What we use of a session of onnxruntime."""

    def run(self, outputs: Sequence[str], inputs: Mapping[str, Floats]) -> list[Floats]: ...


def session(model: bytes) -> Session:
    """The model, ready for use; SetupError if onnxruntime is not installed."""
    onnxruntime = library("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Plans for pictures of one size: with many sizes they only hold memory.
    options.enable_mem_pattern = False
    return cast(
        Session,
        onnxruntime.InferenceSession(
            without_shapes(model), options, providers=["CPUExecutionProvider"]
        ),
    )


def as_input(pixels: Pixels) -> Floats:
    """The pixels as a network takes them: one picture, bands first, filled up with black."""
    height, width = pixels.shape[:2]
    padded = np.zeros((1, 3, _up(height), _up(width)), np.float32)
    padded[0, :, :height, :width] = pixels.transpose(2, 0, 1)
    return padded


def _up(size: int) -> int:
    return -(-size // _MULTIPLE) * _MULTIPLE
