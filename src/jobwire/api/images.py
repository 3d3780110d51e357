"""The operations of images: announce a photo, upload it, follow it, read, list and delete it."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from jobwire.api.operation import Operation, Proof
from jobwire.api.problems import TIMED_OUT, TOO_LARGE, UNAVAILABLE, ProblemKind

IMAGES: Final = "/v1/images"
UPLOADS: Final = "/v1/uploads"
MAX_PAGE: Final = 200
MAX_AREAS: Final = 16
PUBLISHED_TYPE: Final = "image/webp"
CONTENT_TYPES: Final = ("image/jpeg", "image/png", "image/webp", "image/avif", "image/heic")
HELD_FOR: Final = ("none_found", "doubtful", "mostly_hidden")
STATUSES: Final = ("processing", "ready", "failed")
# `$` alone would also match before a line break at the end.
_FILE_NAME: Final = r"^[^\x00-\x1f\x7f]*$(?!\n)"

ContentType = Literal["image/jpeg", "image/png", "image/webp", "image/avif", "image/heic"]
Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


class AreaToHide(Struct, frozen=True, forbid_unknown_fields=True):
    """A rectangle, in parts of the upright picture's width and height."""

    left: Annotated[float, Meta(ge=0, lt=1)]
    top: Annotated[float, Meta(ge=0, lt=1)]
    width: Annotated[float, Meta(gt=0, le=1)]
    height: Annotated[float, Meta(gt=0, le=1)]


class AreasToHide(Struct, frozen=True, forbid_unknown_fields=True):
    """Areas that a person has drawn on a held photo; they replace earlier ones."""

    areas: Annotated[list[AreaToHide], Meta(max_length=MAX_AREAS)]
    show_doubtful: Annotated[
        bool, Meta(description="whether detected areas that are not certain are left visible")
    ] = False


class NewImage(Struct, frozen=True, forbid_unknown_fields=True):
    """An upload that is announced."""

    content_type: ContentType
    size: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="in bytes")] = None
    filename: Annotated[str, Meta(max_length=255, pattern=_FILE_NAME)] = ""
    areas: Annotated[
        list[AreaToHide],
        Meta(max_length=MAX_AREAS, description="hidden besides what is detected"),
    ] = []


class ImageFilter(Struct, frozen=True):
    """The query of a list of images."""

    limit: Annotated[
        int, Meta(ge=1, le=MAX_PAGE, description="how many; default 50", examples=[20])
    ] = 50
    cursor: Annotated[
        Annotated[str, Meta(max_length=256)] | None,
        Meta(description="`cursor` of the previous page"),
    ] = None


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


class ImageUpload(Struct, frozen=True, kw_only=True):
    """Where and how to send the photo: `PUT upload_url` with `Authorization: Bearer token`."""

    image_id: str
    upload_url: str
    token: str
    expires_at: Moment
    max_size: Annotated[int, Meta(description="the largest photo, in bytes")]


class ImageFailure(Struct, frozen=True):
    """Why an image failed."""

    code: str
    message: str


class Image(Struct, frozen=True, kw_only=True):
    """An image. `url` is there once it is ready, and valid until `url_expires_at`."""

    image_id: str
    status: Annotated[str, Meta(extra_json_schema={"enum": list(STATUSES)})]
    filename: str
    created_at: Moment
    updated_at: Moment
    url: str | None = None
    url_expires_at: Moment | None = None
    content_type: str | None = None
    file_size: int | None = None
    sha256: str | None = None
    width: int | None = None
    height: int | None = None
    original_width: int | None = None
    original_height: int | None = None
    hidden_areas: Annotated[
        int | None, Meta(description="how many areas were hidden, once it is ready, if it is known")
    ] = None
    hidden_part: Annotated[
        float | None,
        Meta(description="the part of its pixels that is hidden, from 0 to 1, if it is known"),
    ] = None
    mostly_hidden: Annotated[bool, Meta(description="whether that is more than a third")] = False
    error: ImageFailure | None = None
    stage: Annotated[str | None, Meta(description="while it is processed, if it is known")] = None
    progress: Annotated[int | None, Meta(description="of that stage, in percent")] = None
    held: Annotated[bool, Meta(description="whether it waits for a reviewer")] = False
    held_for: Annotated[
        str | None,
        Meta(
            description="why it waits for a reviewer",
            extra_json_schema={"examples": list(HELD_FOR)},
        ),
    ] = None


class ImagePage(Struct, frozen=True, kw_only=True):
    """A page of images, newest first; `cursor` leads to the next one."""

    images: list[Image]
    cursor: str | None = None
    max_size: Annotated[int, Meta(description="the largest photo that may be uploaded, in bytes")]


class StatusEvent(Struct, frozen=True, omit_defaults=True):
    """One state of an image: the data of an event."""

    stage: str
    progress: int
    updated_at: str
    error: str | None = None
    hidden_areas: Annotated[int | None, Meta(description="with `ready`, if it is known")] = None
    hidden_part: Annotated[float | None, Meta(description="with `ready`, if it is known")] = None


class UploadAccepted(Struct, frozen=True):
    """The photo is stored and will get a result."""

    status: str


# ── problems ─────────────────────────────────────────────────────────────────────────────────────

IMAGE_NOT_FOUND: Final = ProblemKind("image_not_found", 404, "there is no such image")
IMAGE_NOT_READY: Final = ProblemKind(
    "image_not_ready", 409, "the image is not ready: it is being processed, or it failed"
)
IMAGE_NOT_HELD: Final = ProblemKind("image_not_held", 409, "the image does not wait for a reviewer")
HELD_PICTURE_CHANGES: Final = ProblemKind(
    "held_picture_changes", 409, "the photo is being made again with the new areas; retry"
)
BAD_CURSOR: Final = ProblemKind(
    "bad_cursor", 400, "the cursor is not one of this list; begin without one"
)
IMAGE_TOO_LARGE: Final = ProblemKind("too_large", 413, "the photo is too large")
TOO_MANY_IMAGES: Final = ProblemKind(
    "too_many_images", 429, "too many announced images have no result yet; retry later"
)
BAD_UPLOAD_TOKEN: Final = ProblemKind(
    "bad_upload_token", 401, "the upload token is invalid or has expired; request a new one"
)
OTHER_IMAGE: Final = ProblemKind("other_image", 403, "the upload token is for another image")
ALREADY_UPLOADED: Final = ProblemKind(
    "already_uploaded", 409, "this image was uploaded before; request a new one"
)
LENGTH_REQUIRED: Final = ProblemKind("length_required", 411, "send the upload with Content-Length")
INCOMPLETE: Final = ProblemKind(
    "incomplete", 400, "fewer bytes than announced were received; send the photo again"
)
WRONG_TYPE: Final = ProblemKind(
    "unsupported_media_type", 415, "the photo does not have the type that the token is for"
)
NOT_AN_IMAGE: Final = ProblemKind(
    "not_an_image", 422, "the body is not a JPEG, PNG, WebP, AVIF or HEIC image"
)
UPLOAD_CAPACITY: Final = ProblemKind(
    "upload_capacity", 503, "uploads are not accepted now; try again later"
)

# ── operations ───────────────────────────────────────────────────────────────────────────────────

_ID: Final = "0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10"
_MOMENT: Final = "2026-02-24T10:00:00Z"
_IMAGE: Final = {
    "image_id": _ID,
    "status": "ready",
    "filename": "holiday.jpg",
    "created_at": _MOMENT,
    "updated_at": _MOMENT,
    "url": f"https://bucket.example.com/images/{_ID}.webp?X-Amz-Signature=…",
    "url_expires_at": _MOMENT,
    "content_type": PUBLISHED_TYPE,
    "file_size": 245760,
    "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "width": 1920,
    "height": 1440,
    "original_width": 4032,
    "original_height": 3024,
    "hidden_areas": 2,
    "hidden_part": 0.0342,
    "mostly_hidden": False,
    "error": None,
    "stage": None,
    "progress": None,
    "held": False,
    "held_for": None,
}
ANNOUNCE: Final = Operation(
    "POST",
    IMAGES,
    "submit",
    "Announce a photo; the answer says where to send it",
    tag="images",
    body=NewImage,
    body_example={"content_type": "image/jpeg", "size": 2483112, "filename": "holiday.jpg"},
    answer=ImageUpload,
    example={
        "image_id": _ID,
        "upload_url": f"http://localhost:8080{UPLOADS}/{_ID}",
        "token": "eyJhbGciOiJFZERTQSJ9.e30.c2ln",
        "expires_at": _MOMENT,
        "max_size": 10485760,
    },
    status=201,
    problems=(IMAGE_TOO_LARGE, TOO_MANY_IMAGES, UNAVAILABLE),
)
LIST: Final = Operation(
    "GET",
    IMAGES,
    "read",
    "Images, newest first",
    tag="images",
    query=ImageFilter,
    answer=ImagePage,
    example={"images": [_IMAGE], "cursor": None, "max_size": 10485760},
    problems=(BAD_CURSOR, UNAVAILABLE),
)
GET: Final = Operation(
    "GET",
    IMAGES + "/{image_id}",
    "read",
    "One image, with the URL of the published photo once it is ready",
    tag="images",
    answer=Image,
    example=_IMAGE,
    problems=(IMAGE_NOT_FOUND, UNAVAILABLE),
)
PICTURE: Final = Operation[None](
    "GET",
    IMAGES + "/{image_id}/picture",
    "read",
    "The published photo itself; the original is never served",
    tag="images",
    description=(
        "The headers `jobwire-original-size` (bytes of the upload) and `jobwire-hidden-areas` (as "
        "`face=2`, or `none`) tell what was done to it."
    ),
    media_type=PUBLISHED_TYPE,
    also={304: "the client has this photo already (`If-None-Match`)"},
    problems=(IMAGE_NOT_FOUND, IMAGE_NOT_READY, UNAVAILABLE),
)
DELETE: Final = Operation[None](
    "DELETE",
    IMAGES + "/{image_id}",
    "submit",
    "Delete the photo in all its versions; an image that is being processed is canceled",
    tag="images",
    status=204,
    problems=(IMAGE_NOT_FOUND, UNAVAILABLE),
)
HELD_PICTURE: Final = Operation[None](
    "GET",
    IMAGES + "/{image_id}/held",
    "admin",
    "The photo that waits for a reviewer, as it would be published",
    tag="images",
    media_type=PUBLISHED_TYPE,
    problems=(IMAGE_NOT_FOUND, IMAGE_NOT_HELD, HELD_PICTURE_CHANGES, UNAVAILABLE),
)
APPROVE: Final = Operation[None](
    "POST",
    IMAGES + "/{image_id}/approve",
    "admin",
    "Publish a photo that waits for a reviewer",
    tag="images",
    status=204,
    problems=(IMAGE_NOT_FOUND, IMAGE_NOT_HELD, UNAVAILABLE),
)
REJECT: Final = Operation[None](
    "POST",
    IMAGES + "/{image_id}/reject",
    "admin",
    "Reject a photo that waits for a reviewer: it fails as CANCELED, and is deleted",
    tag="images",
    status=204,
    problems=(IMAGE_NOT_FOUND, IMAGE_NOT_HELD, UNAVAILABLE),
)
AREAS: Final = Operation[None](
    "PUT",
    IMAGES + "/{image_id}/areas",
    "admin",
    "Hide areas of a photo that waits for a reviewer; it goes on waiting",
    tag="images",
    body=AreasToHide,
    body_example={"areas": [{"left": 0.25, "top": 0.1, "width": 0.2, "height": 0.3}]},
    status=204,
    problems=(IMAGE_NOT_FOUND, IMAGE_NOT_HELD, UNAVAILABLE),
)
EVENTS: Final = Operation(
    "GET",
    IMAGES + "/{image_id}/events",
    "read",
    "Follow an image until it is ready or has failed",
    tag="images",
    description=(
        "Server-Sent Events: `processing`, then `ready` or `failed`, which ends the stream. The "
        "first event is the present state; `id` is `updated_at`. After the terminal event a "
        "reconnect is answered with 204."
    ),
    answer=StatusEvent,
    example={"stage": "encoding", "progress": 70, "updated_at": "2026-02-24T10:00:00.000000Z"},
    media_type="text/event-stream",
    also={204: "the client has seen the terminal event"},
    problems=(IMAGE_NOT_FOUND, UNAVAILABLE),
    stream=True,
)
UPLOAD: Final = Operation(
    "PUT",
    UPLOADS + "/{image_id}",
    Proof(
        "uploadToken",
        {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        (BAD_UPLOAD_TOKEN, OTHER_IMAGE),
    ),
    "Upload the photo of an announced image",
    tag="images",
    description=(
        "The body is the photo itself, with its `Content-Type` and `Content-Length`; the token is "
        "that of `POST /v1/images`. 202 means that the photo is stored: its result follows on the "
        "image's event stream. A photo whose body did not arrive whole can be sent again."
    ),
    binary=CONTENT_TYPES,
    answer=UploadAccepted,
    example={"status": "accepted"},
    status=202,
    problems=(
        *(ALREADY_UPLOADED, LENGTH_REQUIRED, INCOMPLETE, WRONG_TYPE, NOT_AN_IMAGE),
        *(IMAGE_TOO_LARGE, UPLOAD_CAPACITY, TIMED_OUT, TOO_LARGE),
    ),
    cors=True,
)
"""`max_body` is set by the gateway that serves it: it is one of its settings."""
