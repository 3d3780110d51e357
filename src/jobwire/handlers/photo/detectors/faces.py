"""The detector `faces`: YuNet on onnxruntime.

Finds faces from about 23 pixels; of those with 15 pixels it finds four of five. The picture must be
upright: few faces are found in one that lies on its side.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final, Protocol, cast

import numpy as np
import numpy.typing as npt

from jobwire.handlers.photo.detectors.onnx_shapes import without_shapes
from jobwire.handlers.photo.detectors.weights import yunet
from jobwire.handlers.photo.errors import SetupError
from jobwire.handlers.photo.picture import Pixels
from jobwire.handlers.photo.results import Area

_Floats = npt.NDArray[np.float32]

LABEL: Final = "face"
_SCORE: Final = 0.6
_SAME_FACE: Final = 0.3
"""Two boxes that share more than this part of their union are one face."""
_STRIDES: Final = (8, 16, 32)


class _Session(Protocol):
    def run(self, outputs: Sequence[str], inputs: Mapping[str, _Floats]) -> list[_Floats]: ...


class Faces:
    """Loaded once, asked for every picture."""

    def __init__(self) -> None:
        self._session = _session(without_shapes(yunet()))

    def find(self, pixels: Pixels) -> Sequence[Area]:
        """Every face, highest score first."""
        height, width = pixels.shape[:2]
        largest = _STRIDES[-1]
        padded = np.zeros((1, 3, _up(height, largest), _up(width, largest)), np.float32)
        padded[0, :, :height, :width] = pixels[:, :, ::-1].transpose(2, 0, 1)  # as blue, green, red
        names = [f"{kind}_{stride}" for stride in _STRIDES for kind in ("cls", "obj", "bbox")]
        found = dict(zip(names, self._session.run(names, {"input": padded}), strict=True))
        boxes: list[_Floats] = []
        for stride in _STRIDES:
            scores = np.sqrt(
                found[f"cls_{stride}"][0, :, 0].clip(0, 1)
                * found[f"obj_{stride}"][0, :, 0].clip(0, 1)
            )
            columns = padded.shape[3] // stride
            boxes.append(_boxes(scores, found[f"bbox_{stride}"][0], columns, stride))
        return [
            area
            for row in _distinct(np.concatenate(boxes))
            if (area := _area(row, width, height)) is not None
        ]


def _boxes(scores: _Floats, offsets: _Floats, columns: int, stride: int) -> _Floats:
    """Candidates of one stride as rows of left, top, right, bottom, score."""
    sure = np.flatnonzero(scores >= _SCORE)
    centre_x = (sure % columns + offsets[sure, 0]) * stride
    centre_y = (sure // columns + offsets[sure, 1]) * stride
    half_w = np.exp(offsets[sure, 2].clip(max=10)) * stride / 2
    half_h = np.exp(offsets[sure, 3].clip(max=10)) * stride / 2
    return np.stack(
        [centre_x - half_w, centre_y - half_h, centre_x + half_w, centre_y + half_h, scores[sure]],
        axis=1,
    ).astype(np.float32)


def _distinct(boxes: _Floats) -> list[_Floats]:
    """The surest box of each face."""
    left = boxes[np.argsort(-boxes[:, 4])]
    kept: list[_Floats] = []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        left = left[_overlap(best, left) <= _SAME_FACE]
    return kept


def _overlap(one: _Floats, others: _Floats) -> _Floats:
    """The common part of two boxes, as a part of their union."""
    sides = np.minimum(one[2:4], others[:, 2:4]) - np.maximum(one[:2], others[:, :2])
    common = sides.clip(0).prod(axis=1)
    sizes = (others[:, 2:4] - others[:, :2]).prod(axis=1)
    return (common / ((one[2:4] - one[:2]).prod() + sizes - common)).astype(np.float32)


def _area(box: _Floats, width: int, height: int) -> Area | None:
    """The part of the box inside the picture."""
    left, top = max(0, int(np.floor(box[0]))), max(0, int(np.floor(box[1])))
    right, bottom = min(width, int(np.ceil(box[2]))), min(height, int(np.ceil(box[3])))
    if right <= left or bottom <= top:
        return None
    return Area(left, top, right - left, bottom - top, LABEL, round(float(box[4]), 3))


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _session(model: bytes) -> _Session:
    try:
        library = import_module("onnxruntime")
    except ImportError as error:
        raise SetupError(
            "onnxruntime is not installed; run: pip install 'jobwire[images]'", detail=str(error)
        ) from error
    options = library.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Plans for pictures of one size: with many sizes they only hold memory.
    options.enable_mem_pattern = False
    return cast(
        _Session, library.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    )
