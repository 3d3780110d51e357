"""Output pictures through the gateway, for clients that cannot reach the bucket (a web page)."""

from jobwire.api.problems import NOT_FOUND
from jobwire.gateway.conditional import NO_CACHE, has_version, quoted_tag, reply_unchanged
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.objects import Bucket, Found, TooLarge
from jobwire.systems.predictions.contract import MAX_OUTPUT_BYTES, OUTPUT_PREFIX
from jobwire.systems.predictions.images import sniff
from jobwire.systems.predictions.listing import TaskView


async def output_picture(
    bucket: Bucket, view: TaskView, number: int, request: HttpRequest
) -> Reply | None:
    """The stored picture with this number; Problem if there is none, or it is no picture. None if
    the client has it: 304 was sent then.

    The key may come from another program's task object: only keys of outputs are read, and the type
    is that of the content.
    """
    key = view.outputs[number - 1] if number <= len(view.outputs) else ""
    if not key.startswith(OUTPUT_PREFIX):
        raise Problem(NOT_FOUND, "there is no such picture")
    try:
        found = await bucket.get(key, max_bytes=MAX_OUTPUT_BYTES)
    except (TooLarge, ValueError) as error:  # a key that no object can have
        raise Problem(NOT_FOUND, f"the picture cannot be shown: {error}") from error
    mime = sniff(found.body) if isinstance(found, Found) else None
    if not isinstance(found, Found) or mime is None:
        raise Problem(NOT_FOUND, "the picture is not in the bucket any more, or is none")
    etag = quoted_tag(found.version.e_tag.strip('"'))
    headers = (*NO_CACHE, (b"etag", etag.encode()))
    if has_version(request, etag):
        await reply_unchanged(request, headers)
        return None
    return Reply(found.body, headers=headers, media_type=mime.encode())
