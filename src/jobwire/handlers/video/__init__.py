"""Makes a small clip from a script: one title card for each scene, encoded as WebM (B-13).

    cards.py    draws a card: title, scene and voice-over as text (Pillow)
    clip.py     encodes cards as VP9 frames (PyAV)
    handler.py  the job: reports progress, makes the clip, stores it, returns its URL

`handler.py` has no library of its own; the other two are imported when a clip is made.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from jobwire.handlers.video.handler import ClipStore, Scene, VideoResult, VideoScript, make_video

__all__ = ["ClipStore", "Scene", "VideoResult", "VideoScript", "make_video", "missing_libraries"]

_LIBRARIES: Final = ("PIL", "av")


def missing_libraries() -> list[str]:
    """The libraries of the extra `video` that are not installed."""
    return [name for name in _LIBRARIES if find_spec(name) is None]
