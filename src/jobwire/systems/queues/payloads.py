"""Payloads that a queue's jobs must have, as types and as JSON Schema (B-13).

`QueueProducer` takes `check_payload(queue)` as `check_data`; `jobwire schema` prints the schema.
Members that the schema does not know are left as they are: a producer may add its own.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Final, cast

import msgspec
from msgspec import Meta

from jobwire.json_depth import bounded
from jobwire.systems.queues.checks import refuse

VIDEO_GENERATION: Final = "video-generation"

_Text = Annotated[str, Meta(min_length=1, max_length=200)]
_LongText = Annotated[str, Meta(max_length=10_000)]
_Url = Annotated[
    str,
    Meta(pattern=r"^https?://[^\s/]+", max_length=2_000, extra_json_schema={"format": "uri"}),
]


class ScenePayload(msgspec.Struct, rename="camel"):
    scene_number: Annotated[int, Meta(ge=1)]
    duration: Annotated[float, Meta(gt=0, le=3_600, description="seconds")]
    voiceover: _LongText
    image_prompt: _LongText


class ScriptPayload(msgspec.Struct, rename="camel"):
    title: _Text
    scenes: Annotated[list[ScenePayload], Meta(min_length=1, max_length=500)]


class VideoGeneration(msgspec.Struct, rename="camel"):
    """What a job of the queue `video-generation` is made from."""

    video_id: _Text
    user_id: _Text
    script: ScriptPayload
    user_image_urls: Annotated[list[_Url], Meta(max_length=100)] = []


PAYLOADS: Final[Mapping[str, type[msgspec.Struct]]] = {VIDEO_GENERATION: VideoGeneration}


def payload_schema(queue: str) -> dict[str, object] | None:
    """The JSON Schema of a queue's payload; None where it takes any JSON."""
    kind = PAYLOADS.get(_plain(queue))
    if kind is None:
        return None
    schema = cast("dict[str, object]", msgspec.json.schema(kind))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:jobwire:schema:queues:payload.{_plain(queue)}",
        **schema,
    }


def check_payload(queue: str) -> Callable[[str, str], None] | None:
    """A check of a job's name and data for `QueueProducer`; None where the queue takes any JSON."""
    kind = PAYLOADS.get(_plain(queue))
    if kind is None:
        return None
    decode = bounded(msgspec.json.Decoder(kind).decode)

    def check(_: str, data_json: str) -> None:
        try:
            decode(data_json)
        except msgspec.DecodeError as error:
            raise refuse(f"the data does not fit the schema of {queue}: {error}") from None

    return check


def _plain(queue: str) -> str:
    """A hash tag around the name does not make it another queue."""
    return queue[1:-1] if queue.startswith("{") and queue.endswith("}") else queue
