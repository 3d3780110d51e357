"""All versions of an object, and uploads that nobody finished: seen and removed.

Called by `Bucket.delete` and by `sweep.py`. On a bucket that keeps versions a plain removal only
hides an object; what must be gone (a photo with its faces) is removed version by version.
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
    """One version of one object; a marker is a version that says "removed"."""

    key: str
    version_id: str
    latest: bool
    marker: bool
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload in parts that was begun."""

    key: str
    upload_id: str
    begun_at: datetime


async def is_versioned(calls: SignedCalls) -> bool:
    """Whether the bucket keeps versions, or has kept some."""
    answer = await calls.send("GET", query={"versioning": ""}, expect=(404, 405, 501))
    return answer.status == 200 and bool(parse(answer.body).value("Status"))


async def versions(
    calls: SignedCalls, prefix: str, *, only: str = ""
) -> AsyncIterator[ObjectVersion]:
    """Every version under a prefix, in no order within a page; or of one key `only`."""
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
        # Pages come in the order of keys: those that merely begin alike are later.
        if only and page.value("NextKeyMarker") > only:
            return


async def uploads(calls: SignedCalls, prefix: str) -> AsyncIterator[Upload]:
    """Every upload in parts that was begun under a prefix and not finished."""
    async for page in _pages(
        calls, {"uploads": "", "prefix": prefix}, ("key-marker", "upload-id-marker")
    ):
        for each in page.all("Upload"):
            yield Upload(
                key=each.value("Key"),
                upload_id=each.value("UploadId"),
                begun_at=datetime.fromisoformat(each.value("Initiated")),
            )


async def abort(calls: SignedCalls, upload: Upload) -> None:
    """Give an upload up, with the parts that arrived."""
    await calls.send("DELETE", upload.key, query={"uploadId": upload.upload_id}, expect=(404,))


async def erase(calls: SignedCalls, doomed: Sequence[tuple[str, str]]) -> None:
    """Remove objects given as key and version id; an empty id means the object itself."""
    for first in range(0, len(doomed), _BATCH):
        listed = "".join(
            f"<Object><Key>{escape(key)}</Key>"
            + (f"<VersionId>{escape(version)}</VersionId>" if version else "")
            + "</Object>"
            for key, version in doomed[first : first + _BATCH]
        )
        body = f"<Delete><Quiet>true</Quiet>{listed}</Delete>".encode()
        answer = await calls.send(
            "POST", query={"delete": ""}, headers={"content-md5": content_md5(body)}, body=body
        )
        if answer.body and (kept := next(parse(answer.body).all("Error"), None)):
            raise Unexpected(
                f"{calls.config.where} did not remove {kept.value('Key')} ({kept.value('Code')})"
            )


async def erase_all_of(calls: SignedCalls, key: str) -> None:
    """Remove one object so that no version of it is left."""
    answer = await calls.send("DELETE", key, expect=(404,))
    # A bucket that keeps versions names the one it made of our removal.
    if "x-amz-version-id" in answer.headers:
        await erase(
            calls, [(key, each.version_id) async for each in versions(calls, key, only=key)]
        )


def content_md5(body: bytes) -> str:
    """The digest that S3 wants beside some bodies; it guards against accidents only."""
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
