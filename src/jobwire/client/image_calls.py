"""The methods of images as plans of requests and pauses. Pure."""

import mimetypes
import time
from pathlib import Path
from typing import Final

from jobwire.api import images as api
from jobwire.client.calls import ApiRequest, ApiResponse, Pause, Plan, call
from jobwire.client.errors import (
    ApiError,
    ClientError,
    Invalid,
    TimedOut,
    from_response,
)
from jobwire.client.retry_budget import RetryBudget
from jobwire.job.ids import random_fraction

_UPLOAD_S: Final = 300.0
_POLL_S: Final = (0.1, 0.2, 0.5, 1.0)


# Not every table of types has them.
_BY_SUFFIX: Final = {
    ".webp": "image/webp",
    ".avif": "image/avif",
    ".heic": "image/heic",
    ".heif": "image/heic",
}


class ImageFailed(ClientError):
    """The image failed; `code` is that of the image wire."""

    def __init__(self, image: api.Image) -> None:
        failure = image.error or api.ImageFailure("INTERNAL", "the image failed")
        super().__init__(failure.message, code=failure.code)
        self.image = image


def content_type_of(name: str) -> str:
    """The type of a photo by the name of its file."""
    kind = _BY_SUFFIX.get(Path(name).suffix.lower()) or mimetypes.guess_type(name)[0]
    if kind not in api.CONTENT_TYPES:
        raise Invalid(
            "not a JPEG, PNG, WebP, AVIF or HEIC photo by its name; in Python, give content_type",
            code="unsupported_media_type",
            status=415,
        )
    return kind


def put(budget: RetryBudget, body: bytes, content_type: str, filename: str) -> Plan[str]:
    """Announce and upload a photo; returns its id once it is accepted."""
    photo = {"content_type": content_type, "size": len(body), "filename": filename[:255]}
    announced = yield from call(budget, api.ANNOUNCE, body=photo)
    request = ApiRequest(
        api.UPLOAD.method,
        announced.upload_url,
        body,
        {"Authorization": f"Bearer {announced.token}", "Content-Type": content_type},
        wait_s=_UPLOAD_S,
    )
    may_have_arrived = False
    while True:
        reply = yield request
        if isinstance(reply, ApiResponse):
            if reply.status < 300:
                return announced.image_id
            error: ClientError = from_response(reply.status, reply.body, reply.retry_after_s)
            if may_have_arrived and isinstance(error, ApiError) and error.status == 409:
                return announced.image_id  # an earlier try was accepted, and its answer lost
        else:
            assert reply is not None
            error = reply
            may_have_arrived = may_have_arrived or reply.sent
        pause_s = budget.pause_s(error, time.monotonic(), random_fraction())
        if pause_s is None:
            raise error
        yield Pause(pause_s)


def wait(budget: RetryBudget, image_id: str, timeout_s: float | None) -> Plan[api.Image]:
    """The image once it is ready; raises ImageFailed or TimedOut."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    tries = 0
    while True:
        image = yield from call(budget, api.GET, image_id)
        if image.status == "ready":
            return image
        if image.status == "failed":
            raise ImageFailed(image)
        if deadline_s is not None and timeout_s is not None and time.monotonic() >= deadline_s:
            raise TimedOut(image_id, timeout_s, "image")
        yield Pause(_POLL_S[min(tries, len(_POLL_S) - 1)])
        tries += 1
