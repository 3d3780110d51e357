"""The job that makes a clip: progress as the script's scenes are made, a URL as the result.

Called by the handler of the system `queues`. It knows neither a wire nor a bucket: the script and
a store for the clip are passed in. Images of the user are not fetched.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypedDict

from jobwire.job.errors import Fail

if TYPE_CHECKING:
    from jobwire.handlers.video.clip import ClipEncoder

CONTENT_TYPE: Final = "video/webm"
_FIRST_SCENE: Final = 25
_LAST_SCENE: Final = 50
_UPLOAD: Final = 75


@dataclass(frozen=True, slots=True)
class Scene:
    number: int
    seconds: float
    voiceover: str
    caption: str


@dataclass(frozen=True, slots=True)
class VideoScript:
    title: str
    scenes: Sequence[Scene]

    @property
    def seconds(self) -> float:
        return round(math.fsum(scene.seconds for scene in self.scenes), 6)


class VideoResult(TypedDict):
    videoUrl: str
    duration: float


class ClipStore(Protocol):
    """Where clips are kept and served from."""

    async def store(self, name: str, body: bytes, content_type: str) -> str:
        """Store a clip and return the URL that serves it."""
        ...


class ProgressContext(Protocol):
    """The part of a job's context that is used here."""

    def progress(self, percent: float, message: str = "") -> Awaitable[None]: ...


async def make_video(ctx: ProgressContext, script: VideoScript, store: ClipStore) -> VideoResult:
    """Make the clip of a script and store it. A repeated attempt stores the same object again."""
    if not script.scenes:
        raise Fail("invalid_payload", "the script has no scenes")
    from jobwire.handlers.video.clip import ClipEncoder

    encoder = ClipEncoder(script.seconds)
    try:
        await _add_scenes(ctx, script, encoder)
        body = await asyncio.to_thread(encoder.finish)
    finally:
        # A cancelled job leaves its thread at the next frame.
        encoder.stop()
    await ctx.progress(_UPLOAD, "Uploading video")
    # Named by its content: the clips of two jobs never replace each other.
    name = f"{hashlib.sha256(body).hexdigest()}.webm"
    url = await store.store(name, body, CONTENT_TYPE)
    await ctx.progress(100, "Complete")
    seconds, whole = script.seconds, int(script.seconds)
    return VideoResult(videoUrl=url, duration=whole if whole == seconds else seconds)


async def _add_scenes(ctx: ProgressContext, script: VideoScript, encoder: ClipEncoder) -> None:
    from jobwire.handlers.video.cards import Card

    reported, steps = 0, max(1, len(script.scenes) - 1)
    for at, scene in enumerate(script.scenes):
        percent = _FIRST_SCENE + (_LAST_SCENE - _FIRST_SCENE) * at // steps
        if percent > reported:  # at most one report per percent, however many scenes there are
            reported = percent
            await ctx.progress(percent, f"Generating scene {scene.number}")
        card = Card(script.title, f"Scene {scene.number}", scene.voiceover, scene.caption)
        await asyncio.to_thread(encoder.add, card, scene.seconds)
    if reported < _LAST_SCENE:
        await ctx.progress(_LAST_SCENE, "Scenes generated")
