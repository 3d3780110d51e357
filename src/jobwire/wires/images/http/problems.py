"""The problems of requests about images, besides those of every request."""

from typing import Final

from jobwire.gateway.problems import ProblemKind

IMAGE_NOT_FOUND: Final = ProblemKind("image_not_found", 404, "there is no such image")
NOT_READY: Final = ProblemKind(
    "image_not_ready", 409, "the image is not ready: it is being processed, or it failed"
)
BAD_CURSOR: Final = ProblemKind(
    "bad_cursor", 400, "the cursor is not one of this list; begin without one"
)
IMAGE_TOO_LARGE: Final = ProblemKind("too_large", 413, "the photo is too large")
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
NOT_AN_IMAGE: Final = ProblemKind("not_an_image", 422, "the body is not a JPEG, PNG or WebP image")
CAPACITY: Final = ProblemKind(
    "upload_capacity", 503, "uploads are not accepted now; try again later"
)
UPLOAD_PROBLEMS: Final = (
    *(BAD_UPLOAD_TOKEN, OTHER_IMAGE, ALREADY_UPLOADED, LENGTH_REQUIRED, INCOMPLETE),
    *(IMAGE_TOO_LARGE, WRONG_TYPE, NOT_AN_IMAGE, CAPACITY),
)
