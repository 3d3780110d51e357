"""The handler of the queue `video-generation` in a worker: the payload of the wire in, a clip in
the bucket out (B-13)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from jobwire.handlers.video import Scene, VideoResult, VideoScript, make_video, missing_libraries
from jobwire.job.errors import Retry
from jobwire.job.messages import MissingRequirement
from jobwire.log import component
from jobwire.objects import BucketConfig, ObjectsError
from jobwire.objects.lifecycle import Rule
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.payloads import VIDEO_GENERATION, VideoGeneration
from jobwire.worker.context import Context

if TYPE_CHECKING:
    from jobwire.objects import Bucket
    from jobwire.settings import Settings
    from jobwire.worker import App

_log = component("video")

QUEUES: Final = (VIDEO_GENERATION, f"{{{VIDEO_GENERATION}}}")
"""B-9: the published contract writes the name with braces, which is a hash tag."""
_PREFIX: Final = "videos/"
_URL_LIFETIME: Final = timedelta(days=7)
LIFECYCLE: Final[Sequence[Rule]] = (Rule("jobwire-videos", _PREFIX, _URL_LIFETIME.days + 1),)
_CONCURRENCY: Final = 2
"""Clips that one worker encodes at a time: each uses a core."""


class BucketStore:
    """Clips in the bucket, served by signed URLs. The bucket is opened for the first clip."""

    def __init__(self, config: BucketConfig) -> None:
        self._config = config
        self._bucket: Bucket | None = None

    async def store(self, name: str, body: bytes, content_type: str) -> str:
        from jobwire.objects import Bucket  # late: an extra

        bucket = self._bucket = self._bucket or Bucket(self._config)
        try:
            await bucket.put(f"{_PREFIX}{name}", body, content_type=content_type)
            return await bucket.presign(f"{_PREFIX}{name}", _URL_LIFETIME)
        except ObjectsError as error:
            if not error.retryable:
                raise
            raise Retry(message=f"the clip was not stored: {error}", code="unavailable") from error


def register_video(app: App, settings: Settings) -> None:
    """Serve the queue under both of its names, unless the App does. Without a bucket nothing is
    served; without the libraries the worker reports what is missing."""
    queues = [queue for queue in QUEUES if queue not in _own_queues(app)]
    if not settings.objects.endpoint:
        _log.debug(
            "queue not served queue=%(queue)s; set objects.endpoint", {"queue": VIDEO_GENERATION}
        )
        return
    if missing := missing_libraries():
        _log.warning(
            "queue not served queue=%(queue)s missing=%(missing)s",
            {"queue": VIDEO_GENERATION, "missing": missing},
        )
        app.check(lambda: [_not_installed(missing)])
        return
    store = BucketStore(settings.objects.config())

    async def video(ctx: Context[VideoGeneration]) -> VideoResult:
        return await make_video(ctx, _script(ctx.payload), store)

    # By value: the names of its annotations belong to this function.
    video.__annotations__ = {"ctx": Context[VideoGeneration], "return": VideoResult}
    for queue in queues:
        app.handler("*", queue=queue, wire=BullEngine.wire, concurrency=_CONCURRENCY)(video)


def _own_queues(app: App) -> set[str]:
    return {*app.queues(""), *app.queues(BullEngine.wire)}


def _not_installed(missing: Sequence[str]) -> MissingRequirement:
    fault = f"clips are not made: {', '.join(missing)} is not installed"
    return MissingRequirement(VIDEO_GENERATION, fault, "pip install 'jobwire[video]'")


def _script(payload: VideoGeneration) -> VideoScript:
    script = payload.script
    scenes = [
        Scene(each.scene_number, each.duration, each.voiceover, each.image_prompt)
        for each in script.scenes
    ]
    return VideoScript(script.title, scenes)
