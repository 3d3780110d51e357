"""YuNet: fast, and good at upright faces from about 15 pixels."""

from typing import Final

import numpy as np

from jobwire.handlers.photo.detectors.boxes import Boxes, distinct
from jobwire.handlers.photo.detectors.network import Floats, as_input, session
from jobwire.handlers.photo.detectors.weights import YUNET, weights
from jobwire.handlers.photo.picture import Pixels

_STRIDES: Final = (8, 16, 32)
_OUTPUTS: Final = tuple(
    f"{kind}_{stride}" for stride in _STRIDES for kind in ("cls", "obj", "bbox")
)


class YuNet:
    """Implements `Network`."""

    def __init__(self) -> None:
        self._session = session(weights(YUNET))

    def find(self, pixels: Pixels, score: float) -> Boxes:
        seen = as_input(pixels[:, :, ::-1])  # it takes blue, green, red
        found = dict(zip(_OUTPUTS, self._session.run(_OUTPUTS, {"input": seen}), strict=True))
        boxes: list[Boxes] = []
        for stride in _STRIDES:
            scores = np.sqrt(
                found[f"cls_{stride}"][0, :, 0].clip(0, 1)
                * found[f"obj_{stride}"][0, :, 0].clip(0, 1)
            )
            columns = seen.shape[3] // stride
            boxes.append(_boxes(scores, found[f"bbox_{stride}"][0], columns, stride, score))
        return distinct(np.concatenate(boxes))


def _boxes(scores: Floats, offsets: Floats, columns: int, stride: int, score: float) -> Boxes:
    """Candidates of one stride."""
    sure = np.flatnonzero(scores >= score)
    centre_x = (sure % columns + offsets[sure, 0]) * stride
    centre_y = (sure // columns + offsets[sure, 1]) * stride
    half_w = np.exp(offsets[sure, 2].clip(max=10)) * stride / 2
    half_h = np.exp(offsets[sure, 3].clip(max=10)) * stride / 2
    return np.stack(
        [centre_x - half_w, centre_y - half_h, centre_x + half_w, centre_y + half_h, scores[sure]],
        axis=1,
    ).astype(np.float32)
