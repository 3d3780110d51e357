"""The published photo through the gateway, for clients that cannot reach the bucket.

A web page is such a client: its content policy names no other host, and the bucket may listen on an
address of the servers only.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import APIRouter, Path, Response

from jobwire.api.problems import UNAVAILABLE
from jobwire.gateway.conditional import NO_CACHE, has_version, quoted_tag
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.router import CurrentRequest, needs
from jobwire.job.errors import BackendUnavailable
from jobwire.objects import Bucket, Missing, ObjectsError
from jobwire.wires.images.contract import HIDDEN_AREAS, ORIGINAL_SIZE, PUBLISHED_TYPE
from jobwire.wires.images.http import problems
from jobwire.wires.images.http.schemas import PATH
from jobwire.wires.images.records import ImageRecord, RecordStatus

Find = Callable[[str, HttpRequest], Awaitable[ImageRecord]]
"""The record of an image that the caller may see; raises a Problem if there is none."""
_FACTS: Final = (ORIGINAL_SIZE, HIDDEN_AREAS)


def picture_route(routes: APIRouter, find: Find, bucket: Bucket) -> None:
    """Add the route."""

    @routes.get(
        PATH + "/{image_id}/picture",
        response_class=Response,
        responses={200: {"content": {PUBLISHED_TYPE: {}}, "description": "the photo"}},
        openapi_extra=needs("read", problems.IMAGE_NOT_FOUND, problems.NOT_READY, UNAVAILABLE),
    )
    async def get_the_picture(
        image_id: Annotated[str, Path(max_length=64)], request: CurrentRequest
    ) -> Response:
        """The published photo itself; the original is never served.

        The headers `jobwire-original-size` (bytes of the upload) and `jobwire-hidden-areas` (as
        `face=2`, or `none`) tell what was done to it.
        """
        record = await find(image_id, request)
        if record.status is not RecordStatus.READY:
            raise Problem(problems.NOT_READY)
        # A deleted image must not be shown from a browser's cache: it asks each time.
        headers = {"cache-control": NO_CACHE}
        if record.sha256:
            headers["etag"] = quoted_tag(record.sha256)
            if has_version(request, headers["etag"]):
                return Response(status_code=304, headers=headers)
        try:
            found = await bucket.get(record.storage_key)
        except ObjectsError as error:
            raise BackendUnavailable(
                "the bucket does not answer; retry", detail=str(error)
            ) from error
        if isinstance(found, Missing):
            raise Problem(problems.IMAGE_NOT_FOUND, "the photo is not in the bucket any more")
        headers |= {
            name: value
            for name, value in found.metadata.items()
            if name in _FACTS and value.isascii() and value.isprintable()
        }
        # Not the type that the bucket names: others may have written there.
        return Response(found.body, headers=headers, media_type=PUBLISHED_TYPE)
