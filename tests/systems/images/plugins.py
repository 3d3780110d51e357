"""Detectors for the photo workers of tests."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from jobwire.handlers.photo.picture import Pixels
from jobwire.handlers.photo.results import Area

HOLD = "hold-dark-photos"


class LeftHalf:
    """Finds the left half. Waits on a dark picture while the file `HOLD` is in TMPDIR."""

    def find(self, pixels: Pixels) -> Sequence[Area]:
        while pixels.mean() < 10 and Path(os.environ["TMPDIR"], HOLD).exists():
            time.sleep(0.01)
        height, width = pixels.shape[:2]
        return [Area(0, 0, width // 2, height, "half")]


class TwoOfBright:
    """Finds two areas in a bright picture, and nothing in a dark one."""

    def find(self, pixels: Pixels) -> Sequence[Area]:
        if pixels.mean() < 128:
            return []
        return [Area(2, 2, 10, 10, "face"), Area(100, 80, 10, 10, "plate")]


class Doubts:
    """Finds three areas in a bright picture, one of each certainty; in a grey one its left half."""

    def find(self, pixels: Pixels) -> Sequence[Area]:
        height, width = pixels.shape[:2]
        if pixels.mean() < 60:
            return []
        if pixels.mean() < 160:
            return [Area(0, 0, width // 2, height, "face")]
        return [
            Area(2, 2, 10, 10, "face"),
            Area(60, 60, 10, 10, "face", 0.6, "doubtful"),
            Area(120, 90, 10, 10, "face", 0.6, "refuted"),
        ]
