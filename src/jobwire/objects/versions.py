"""Versions of objects and unfinished uploads: listed and deleted.

Called by `Bucket.delete` and by `sweep.py`. In a versioned bucket a plain delete only hides an
object; personal data (a photo with faces) must be deleted version by version.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import md5
from typing import Final
from xml.sax.saxutils import escape

from jobwire.objects.errors import Unexpected
from jobwire.objects.signed import SignedCalls
from jobwire.objects.xml import Element, parse

_BATCH: Final = 1000


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """One version of one object; a marker is a version that means "deleted"."""

    key: str
    version_id: str
    latest: bool
    marker: bool
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class MultipartUpload:
    """An unfinished multipart upload."""

    key: str
    upload_id: str
    begun_at: datetime


async def is_versioned(calls: SignedCalls) -> bool:
    """Whether versioning is or was enabled."""
    response = await calls.send("GET", query={"versioning": ""}, expect=(404, 405, 501))
    return response.status == 200 and bool(parse(response.body).value("Status"))


async def versions(
    calls: SignedCalls, prefix: str, *, only: str = ""
) -> AsyncIterator[ObjectVersion]:
    """All versions under a prefix, unordered within a page; or of one key `only`."""
    async for page in _pages(
        calls, {"versions": "", "prefix": prefix}, ("key-marker", "version-id-marker")
    ):
        for each in page.children:
            if each.name in ("Version", "DeleteMarker") and only in ("", each.value("Key")):
                yield ObjectVersion(
                    key=each.value("Key"),
                    version_id=each.value("VersionId"),
                    latest=each.value("IsLatest") == "true",
                    marker=each.name == "DeleteMarker",
                    modified_at=datetime.fromisoformat(each.value("LastModified")),
                )
        # Pages are ordered by key: keys that only share the prefix come later.
        if only and page.value("NextKeyMarker") > only:
            return


async def uploads(calls: SignedCalls, prefix: str) -> AsyncIterator[MultipartUpload]:
    """All unfinished multipart uploads under a prefix."""
    async for page in _pages(
        calls, {"uploads": "", "prefix": prefix}, ("key-marker", "upload-id-marker")
    ):
        for each in page.all("Upload"):
            yield MultipartUpload(
                key=each.value("Key"),
                upload_id=each.value("UploadId"),
                begun_at=datetime.fromisoformat(each.value("Initiated")),
            )


async def abort(calls: SignedCalls, upload: MultipartUpload) -> None:
    """Abort an upload and delete its parts."""
    await calls.send("DELETE", upload.key, query={"uploadId": upload.upload_id}, expect=(404,))


async def erase(calls: SignedCalls, targets: Sequence[tuple[str, str]]) -> None:
    """Delete objects given as key and version id; an empty id means the object itself."""
    for first in range(0, len(targets), _BATCH):
        listed = "".join(
            f"<Object><Key>{escape(key)}</Key>"
            + (f"<VersionId>{escape(version)}</VersionId>" if version else "")
            + "</Object>"
            for key, version in targets[first : first + _BATCH]
        )
        body = f"<Delete><Quiet>true</Quiet>{listed}</Delete>".encode()
        response = await calls.send(
            "POST", query={"delete": ""}, headers={"content-md5": content_md5(body)}, body=body
        )
        if response.body and (kept := next(parse(response.body).all("Error"), None)):
            raise Unexpected(
                f"{calls.config.where} did not delete {kept.value('Key')} ({kept.value('Code')})"
            )


async def erase_all_of(calls: SignedCalls, key: str) -> None:
    """Delete one object with all its versions."""
    response = await calls.send("DELETE", key, expect=(404,))
    # A versioned bucket returns the version id of the delete marker.
    if "x-amz-version-id" in response.headers:
        await erase(
            calls, [(key, each.version_id) async for each in versions(calls, key, only=key)]
        )


def content_md5(body: bytes) -> str:
    """The digest header that S3 requires for some requests; a checksum, not security."""
    return b64encode(md5(body, usedforsecurity=False).digest()).decode()


async def _pages(
    calls: SignedCalls, query: dict[str, str], markers: tuple[str, str]
) -> AsyncIterator[Element]:
    while True:
        page = parse((await calls.send("GET", query=query)).body)
        yield page
        if page.value("IsTruncated") != "true":
            return
        for marker in markers:
            # NextKeyMarker, NextVersionIdMarker, NextUploadIdMarker
            query[marker] = page.value("Next" + marker.title().replace("-", ""))
