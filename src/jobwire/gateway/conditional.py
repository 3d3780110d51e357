"""Conditional GET of bodies that have a version: `ETag` and `If-None-Match`."""

from typing import Final

from jobwire.gateway.problems import Headers
from jobwire.gateway.request import HttpRequest

NO_CACHE: Final[Headers] = ((b"cache-control", b"private, no-cache"),)
"""The browser may store the body and asks each time whether it still is the current one."""


def quoted_tag(version: str) -> str:
    """The `ETag` of a version."""
    return f'"{version}"'


def has_version(request: HttpRequest, etag: str) -> bool:
    """Whether the client has this version; a proxy may have marked its tag as weak."""
    given = request.headers.get(b"if-none-match", b"").decode("latin-1")
    tags = [tag.strip().removeprefix("W/") for tag in given.split(",")]
    return etag in tags or tags == ["*"]


async def reply_unchanged(request: HttpRequest, headers: Headers) -> None:
    """Answer 304: the client's copy is the current one."""
    await request.start(304, headers)
    await request.end()
