"""The problems of requests about images, besides those of every request."""

from typing import Final

from jobwire.api.problems import ProblemKind
from jobwire.wires.images import uploads

IMAGE_NOT_FOUND: Final = ProblemKind("image_not_found", 404, "there is no such image")
NOT_READY: Final = ProblemKind(
    "image_not_ready", 409, "the image is not ready: it is being processed, or it failed"
)
BAD_CURSOR: Final = ProblemKind(
    "bad_cursor", 400, "the cursor is not one of this list; begin without one"
)
IMAGE_TOO_LARGE: Final = ProblemKind(*uploads.TOO_LARGE)
BAD_UPLOAD_TOKEN: Final = ProblemKind(*uploads.BAD_TOKEN)
OTHER_IMAGE: Final = ProblemKind(*uploads.OTHER_IMAGE)
CAPACITY: Final = ProblemKind(
    "upload_capacity", 503, "uploads are not accepted now; try again later"
)
UPLOAD_PROBLEMS: Final = (
    *(ProblemKind(*fault) for fault in (uploads.USED, uploads.NO_LENGTH, uploads.INCOMPLETE)),
    *(ProblemKind(*fault) for fault in (uploads.WRONG_TYPE, uploads.NOT_AN_IMAGE)),
    *(IMAGE_TOO_LARGE, CAPACITY),
)
"""Those of the upload route, besides the ones of its token."""
