"""The methods of images as plans of requests and pauses, and their messages. Pure."""

import mimetypes
import time
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from msgspec import Struct

from jobwire.client.calls import (
    ApiRequest,
    ApiResponse,
    Pause,
    Plan,
    delete,
    fetch,
    post,
    with_query,
)
from jobwire.client.errors import (
    ApiError,
    ClientError,
    Invalid,
    TimedOut,
    from_response,
)
from jobwire.client.retry_budget import RetryBudget
from jobwire.job.ids import random_fraction

IMAGES: Final = "/v1/images"
IMAGE_TYPES: Final = ("image/jpeg", "image/png", "image/webp")
_UPLOAD_S: Final = 300.0
_POLL_S: Final = (0.1, 0.2, 0.5, 1.0)


class ImageFailed(ClientError):
    """The image failed; `code` is that of the image wire."""

    def __init__(self, image: "Image") -> None:
        failure = image.error or ImageError("INTERNAL", "the image failed")
        super().__init__(failure.message, code=failure.code)
        self.image = image


class ImageError(Struct, frozen=True):
    """Why an image failed."""

    code: str
    message: str


class Image(Struct, frozen=True, kw_only=True):
    """One image."""

    image_id: str
    status: Literal["processing", "ready", "failed"]
    filename: str = ""
    created_at: str = ""
    updated_at: str = ""
    url: str | None = None
    """Of the published photo, once it is ready; valid until `url_expires_at`."""
    url_expires_at: str | None = None
    content_type: str | None = None
    file_size: int | None = None
    sha256: str | None = None
    width: int | None = None
    height: int | None = None
    original_width: int | None = None
    original_height: int | None = None
    error: ImageError | None = None
    stage: str | None = None
    """While it is processed, if it is known."""
    progress: int | None = None


class ImagePage(Struct, frozen=True):
    """A page of images, newest first."""

    images: list[Image]
    cursor: str | None = None


class ImageProgress(Struct, frozen=True):
    """A state of an image, from its event stream."""

    stage: str
    progress: int
    updated_at: str
    error: str | None = None
    event: str = ""

    @property
    def is_last(self) -> bool:
        """Whether the image is ready or has failed."""
        return self.event in ("ready", "failed")


class AnnouncedUpload(Struct, frozen=True):
    """Where to send a photo."""

    image_id: str
    upload_url: str
    token: str
    expires_at: str
    max_size: int = 0


def image_path(image_id: str) -> str:
    """The path of an image."""
    return f"{IMAGES}/{quote(image_id, safe='')}"


def content_type_of(name: str) -> str:
    """The type of a photo by the name of its file."""
    guessed = mimetypes.guess_type(name)[0]
    kind = "image/webp" if name.lower().endswith(".webp") else guessed
    if kind not in IMAGE_TYPES:
        raise Invalid(
            f"{Path(name).name}: send a JPEG, PNG or WebP photo, or give its content_type",
            code="unsupported_media_type",
            status=415,
        )
    return kind


def put(budget: RetryBudget, body: bytes, content_type: str, filename: str) -> Plan[str]:
    """Announce and upload a photo; returns its id once it is accepted."""
    photo = {"content_type": content_type, "size": len(body), "filename": filename[:255]}
    announced = yield from post(budget, IMAGES, AnnouncedUpload, photo)
    request = ApiRequest(
        "PUT",
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


def get(budget: RetryBudget, image_id: str) -> Plan[Image]:
    """One image."""
    return fetch(budget, image_path(image_id), Image)


def wait(budget: RetryBudget, image_id: str, timeout_s: float | None) -> Plan[Image]:
    """The image once it is ready; raises ImageFailed or TimedOut."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    tries = 0
    while True:
        image = yield from get(budget, image_id)
        if image.status == "ready":
            return image
        if image.status == "failed":
            raise ImageFailed(image)
        if deadline_s is not None and timeout_s is not None and time.monotonic() >= deadline_s:
            raise TimedOut(image_id, timeout_s, "image")
        yield Pause(_POLL_S[min(tries, len(_POLL_S) - 1)])
        tries += 1


def list_images(budget: RetryBudget, limit: int | None, cursor: str | None) -> Plan[ImagePage]:
    """A page of images."""
    return fetch(budget, with_query(IMAGES, limit=limit, cursor=cursor), ImagePage)


def delete_image(budget: RetryBudget, image_id: str) -> Plan[None]:
    """Delete an image in all its versions."""
    return delete(budget, image_path(image_id))
