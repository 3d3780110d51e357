"""The published photo through the gateway, for clients that cannot reach the bucket.

A web page is such a client: its content policy names no other host, and the bucket may listen on an
address of the servers only.
"""

from typing import Final

from jobwire.api import images as api
from jobwire.gateway.conditional import NO_CACHE, has_version, quoted_tag, reply_unchanged
from jobwire.gateway.problems import Headers, Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.job.errors import BackendUnavailable
from jobwire.objects import Bucket, Missing, ObjectsError
from jobwire.systems.images.contract import HIDDEN_AREAS, ORIGINAL_SIZE, PUBLISHED_TYPE
from jobwire.systems.images.records import ImageRecord, RecordStatus

_FACTS: Final = (ORIGINAL_SIZE, HIDDEN_AREAS)
_MEDIA_TYPE: Final = PUBLISHED_TYPE.encode()


async def published_photo(
    bucket: Bucket, record: ImageRecord, request: HttpRequest
) -> Reply | None:
    """The photo of a record; None if the client has it: 304 was sent then."""
    if record.status is not RecordStatus.READY:
        raise Problem(api.IMAGE_NOT_READY)
    # A deleted image must not be shown from a browser's cache: it asks each time.
    headers: Headers = NO_CACHE
    if record.sha256:
        etag = quoted_tag(record.sha256)
        headers = (*headers, (b"etag", etag.encode()))
        if has_version(request, etag):
            await reply_unchanged(request, headers)
            return None
    try:
        found = await bucket.get(record.storage_key)
    except ObjectsError as error:
        raise BackendUnavailable("the bucket does not answer; retry", detail=str(error)) from error
    if isinstance(found, Missing):
        raise Problem(api.IMAGE_NOT_FOUND, "the photo is not in the bucket any more")
    facts = (
        (name.encode(), value.encode())
        for name, value in found.metadata.items()
        if name in _FACTS and value.isascii() and value.isprintable()
    )
    # Not the type that the bucket names: others may have written there.
    return Reply(found.body, headers=(*headers, *facts), media_type=_MEDIA_TYPE)
