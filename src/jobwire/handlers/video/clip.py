"""Encodes title cards as a WebM clip in memory (VP9, no sound).

VP9 plays in every current browser and its encoder has a free licence. The number of frames is
bounded whatever the duration: long clips have fewer frames per second. Methods block; they are
called in a thread, one at a time.
"""

from __future__ import annotations

import io
from fractions import Fraction
from threading import Lock
from typing import Any, Final

import av
from PIL import Image

from jobwire.handlers.video.cards import HEIGHT, WIDTH, Card, draw, draw_bar

_av: Any = av
"""The library is typed in part."""
_MS: Final = Fraction(1, 1000)
_FRAME_MS: Final = 200
_MAX_FRAMES: Final = 300
_OPTIONS: Final = {"deadline": "realtime", "cpu-used": "8", "crf": "34", "b": "0"}


class Stopped(Exception):
    """The clip is no longer wanted."""


class ClipEncoder:
    def __init__(self, total_s: float) -> None:
        """`total_s` is the duration of the whole clip."""
        self._total_ms = max(1, round(total_s * 1000))
        self._step_ms = max(_FRAME_MS, self._total_ms // _MAX_FRAMES)
        self._body = io.BytesIO()
        self._lock = Lock()
        self._stopped = False
        self._at_ms = 0.0
        self._last_ms = -1
        self._durations_ms: dict[int, int] = {}
        # Without random ids in the file: equal scripts make equal clips.
        self._container = _av.open(self._body, "w", format="webm", options={"fflags": "+bitexact"})
        rate = Fraction(1000, self._step_ms)
        stream = self._container.add_stream("libvpx-vp9", rate=rate, options=_OPTIONS)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.codec_context.time_base = _MS
        stream.codec_context.thread_count = 1
        self._stream = stream

    def add(self, card: Card, seconds: float) -> None:
        """Show a card for that long; every card has at least one frame."""
        with self._lock:
            image, end_ms = draw(card), self._at_ms + seconds * 1000
            first = True
            while first or self._at_ms < end_ms:
                if self._stopped:
                    raise Stopped
                first = False
                step_ms = min(self._step_ms, end_ms - self._at_ms)
                self._encode(draw_bar(image, self._at_ms / self._total_ms), step_ms)
                self._at_ms += step_ms
            self._at_ms = end_ms

    def _encode(self, image: Image.Image, step_ms: float) -> None:
        frame = _av.VideoFrame.from_image(image)
        # Scenes shorter than a millisecond still follow each other.
        frame.pts = self._last_ms = max(self._last_ms + 1, round(self._at_ms))
        frame.time_base = _MS
        self._durations_ms[frame.pts] = max(1, round(step_ms))
        self._mux(frame)

    def _mux(self, frame: Any) -> None:
        for packet in self._stream.encode(frame):
            # The encoder assumes equal steps; the last frame of a scene may be shorter.
            if packet.pts is not None:
                packet.duration = self._durations_ms.pop(packet.pts, self._step_ms)
            self._container.mux(packet)

    def finish(self) -> bytes:
        """The whole clip."""
        with self._lock:
            self._mux(None)
            self._container.close()
            return self._body.getvalue()

    def stop(self) -> None:
        """End an `add` in another thread at its next frame."""
        self._stopped = True
