"""The images API: announce an upload, read, list, delete (I-10, I-11)."""

import asyncio
import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from jobwire.api import images as api
from jobwire.gateway import tenants
from jobwire.gateway.cached_value import CachedValue
from jobwire.gateway.problems import Problem, retry_after
from jobwire.gateway.request import ClientGone, HttpRequest, Reply
from jobwire.gateway.route import Route, serve
from jobwire.gateway.settings import ALL_TENANTS
from jobwire.gateway.submissions import FULL_RETRY_S, SubmissionLimits
from jobwire.job.errors import BackendUnavailable
from jobwire.job.ids import new_job_id
from jobwire.objects import Bucket, ObjectsError
from jobwire.systems.images.contract import (
    IMAGE_ID,
    MOSTLY_HIDDEN,
    ReviewDecision,
    ReviewField,
    Stage,
    format_time,
    now_utc,
    parse_time,
)
from jobwire.systems.images.erasure import Eraser
from jobwire.systems.images.follow import ImageState, image_state
from jobwire.systems.images.http.picture import published_photo
from jobwire.systems.images.records import ImageRecord, ImageRecords, Position, RecordStatus
from jobwire.systems.images.status import DrawnByReviewer, ImageStatus, Reviewed
from jobwire.systems.images.tokens import TokenIssuer
from jobwire.valkey import ValkeyError

_FRESH_S: Final = 1.0
_HELD_PICTURE_S: Final = 10.0
_HELD_POLL_S: Final = 0.1
_REMADE_S: Final = 1
"""After that time a photo is usually made again."""
UploadBase = Callable[[HttpRequest], str]
"""The address of the upload gateway for a caller, without the path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiLimits:
    """Settings of the routes."""

    max_size: int
    """The largest upload, in bytes."""
    url_life: timedelta
    several_tenants: bool = False
    tenant_max_open: int = 0
    """Open records of one tenant (I-44); 0: any number."""


class ImageRoutes:
    """The endpoints."""

    def __init__(
        self,
        records: ImageRecords,
        status: ImageStatus,
        bucket: Bucket,
        eraser: Eraser,
        issuer: TokenIssuer,
        upload_base: UploadBase,
        limits: ApiLimits,
        submissions: SubmissionLimits,
    ) -> None:
        self._records = records
        self._status = status
        self._bucket = bucket
        self._eraser = eraser
        self._issuer = issuer
        self._upload_base = upload_base
        self._limits = limits
        self._submissions = submissions
        self._open: dict[str, CachedValue[int]] = {}

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            serve(api.ANNOUNCE, self.announce),
            serve(api.LIST, self.list),
            serve(api.GET, self.get),
            serve(api.PICTURE, self.picture),
            serve(api.DELETE, self.delete),
            serve(api.HELD_PICTURE, self.held_picture),
            serve(api.APPROVE, self.approve),
            serve(api.REJECT, self.reject),
            serve(api.AREAS, self.hide_areas),
        ]

    async def announce(self, request: HttpRequest, body: api.NewImage) -> api.ImageUpload:
        """Create the record of a photo, and the token for its upload."""
        max_size = self._limits.max_size
        if body.size is not None and body.size > max_size:
            detail = f"the photo may have {max_size} bytes, and has {body.size}"
            raise Problem(api.IMAGE_TOO_LARGE, detail)
        await self._submissions.admit(request, 1)
        tenant = tenants.own_tenant(request)
        await self._check_open(tenant)
        image_id, now = str(new_job_id()), now_utc()
        try:
            await self._status.advance(image_id, Stage.QUEUED)
        except ValkeyError as error:
            raise _away("Valkey", error) from error
        await self._records.create(
            image_id,
            tenant=tenant,
            content_type=body.content_type,
            filename=body.filename,
            now=now,
        )
        token, expires_at = self._issuer.issue(
            image_id,
            content_type=body.content_type,
            max_size=max_size,
            now=now,
            tenant=tenant if self._limits.several_tenants else "",
            areas=[msgspec.structs.astuple(area) for area in body.areas],
        )
        return api.ImageUpload(
            image_id=image_id,
            upload_url=self._upload_base(request) + api.UPLOAD.url(image_id),
            token=token,
            expires_at=format_time(expires_at),
            max_size=max_size,
        )

    async def _check_open(self, tenant: str) -> None:
        """I-44: a Problem if the tenant has too many open records. They are counted at most once a
        second."""
        if not self._limits.tenant_max_open:
            return
        counted = self._open.setdefault(tenant, CachedValue(_FRESH_S))
        limit = self._limits.tenant_max_open
        if await counted.get(lambda: self._records.count_open(tenant)) >= limit:
            detail = f"your tenant has {limit} announced images without a result"
            raise Problem(api.TOO_MANY_IMAGES, detail, headers=retry_after(FULL_RETRY_S))

    async def list(self, request: HttpRequest, query: api.ImageFilter) -> api.ImagePage:
        """A page of images."""
        tenant = request.principal.tenant
        records = await self._records.page(
            tenant=None if tenant == ALL_TENANTS else tenant,
            limit=query.limit + 1,
            after=_position(query.cursor) if query.cursor else None,
        )
        page = records[: query.limit]
        more = len(records) > query.limit
        return api.ImagePage(
            images=[await self._info(record) for record in page],
            cursor=_cursor(page[-1]) if more else None,
            max_size=self._limits.max_size,
        )

    async def get(self, request: HttpRequest, image_id: str) -> api.Image:
        """One image."""
        return await self._info(await self.find(image_id, request))

    async def picture(self, request: HttpRequest, image_id: str) -> Reply | None:
        """The published photo."""
        return await published_photo(self._bucket, await self.find(image_id, request), request)

    async def delete(self, request: HttpRequest, image_id: str) -> None:
        """Delete the photo and its record; an image that is being processed is canceled."""
        # A deleted one too: an earlier request may have failed half-way.
        record = await self.find(image_id, request, deleted=True)
        # The record first: a result that comes now does not bring the image back.
        await self._records.delete(image_id, now_utc())
        try:
            await self._eraser.erase(record)
        except ValkeyError as error:
            raise _away("Valkey", error) from error
        except ObjectsError as error:
            raise _away("the bucket", error) from error

    async def approve(self, request: HttpRequest, image_id: str) -> None:
        """Publish a held photo."""
        await self._review(request, image_id, ReviewField.DECISION, ReviewDecision.APPROVE)

    async def reject(self, request: HttpRequest, image_id: str) -> None:
        """End a held photo."""
        await self._review(request, image_id, ReviewField.DECISION, ReviewDecision.REJECT)

    async def hide_areas(self, request: HttpRequest, image_id: str, body: api.AreasToHide) -> None:
        """Hide areas of a held photo."""
        areas = [msgspec.structs.astuple(area) for area in body.areas]
        drawn = msgspec.json.encode(DrawnByReviewer(areas, body.show_doubtful))
        await self._review(request, image_id, ReviewField.AREAS, drawn.decode())

    async def held_picture(self, request: HttpRequest, image_id: str) -> Reply:
        """The held photo. The upload gateway that has it is asked over Valkey: the API may be
        another program, and there may be several gateways. With areas that were drawn a moment ago
        the photo is made again: the new one is waited for."""
        await self.find(image_id, request)
        try:
            async with asyncio.timeout(_HELD_PICTURE_S):
                while (answer := await self._wish(image_id, ReviewField.WANTED, "1")) != "noted":
                    if answer == "not_held":
                        raise Problem(api.IMAGE_NOT_HELD)
                    await asyncio.sleep(_HELD_POLL_S)
        except TimeoutError:
            raise Problem(api.HELD_PICTURE_CHANGES, headers=retry_after(_REMADE_S)) from None
        try:
            async with asyncio.timeout(_HELD_PICTURE_S):
                found = await request.while_present(self._picture(image_id))
        except (TimeoutError, ValkeyError) as error:
            raise _away("the upload gateway that holds the photo", error) from error
        if found is None:
            raise ClientGone
        return Reply(
            base64.b64decode(found),
            headers=((b"cache-control", b"no-store"),),
            media_type=api.PUBLISHED_TYPE.encode(),
        )

    async def _picture(self, image_id: str) -> str:
        while (found := await self._status.held_picture(image_id)) is None:
            await asyncio.sleep(_HELD_POLL_S)
        return found

    async def _review(
        self, request: HttpRequest, image_id: str, field: ReviewField, value: str
    ) -> None:
        await self.find(image_id, request)
        if await self._wish(image_id, field, value) == "not_held":
            raise Problem(api.IMAGE_NOT_HELD)

    async def _wish(self, image_id: str, field: ReviewField, value: str) -> Reviewed:
        try:
            return await self._status.review(image_id, field, value)
        except ValkeyError as error:
            raise _away("Valkey", error) from error

    async def find(
        self, image_id: str, request: HttpRequest, *, deleted: bool = False
    ) -> ImageRecord:
        """The record of an image that the caller may see; a Problem if there is none."""
        # An id of another form is never looked up: it could name another key.
        record = await self._records.get(image_id) if IMAGE_ID.fullmatch(image_id) else None
        if (
            record is None
            or (record.status is RecordStatus.DELETED and not deleted)
            or not tenants.may_see(request, record.tenant)
        ):
            raise Problem(api.IMAGE_NOT_FOUND)
        return record

    async def _info(self, record: ImageRecord) -> api.Image:
        status, failure, state = "processing", None, None
        url = url_expires_at = None
        if record.status is RecordStatus.FAILED:
            status = "failed"
            failure = api.ImageFailure(record.error_code or "", record.error_message or "")
        elif record.status is RecordStatus.READY:
            status = "ready"
            url = await self._bucket.presign(record.storage_key, self._limits.url_life)
            url_expires_at = format_time(now_utc() + self._limits.url_life)
        elif record.status is RecordStatus.OPEN:
            state = await self._state(record.image_id)
        held_for = await self._held_for(record.image_id) if state else None
        return api.Image(
            image_id=record.image_id,
            status=status,
            filename=record.filename,
            created_at=format_time(record.created_at),
            updated_at=format_time(record.updated_at),
            url=url,
            url_expires_at=url_expires_at,
            content_type=record.content_type,
            file_size=record.file_size,
            sha256=record.sha256,
            width=record.processed_width,
            height=record.processed_height,
            original_width=record.original_width,
            original_height=record.original_height,
            hidden_areas=record.hidden_areas,
            hidden_part=record.hidden_part,
            mostly_hidden=(record.hidden_part or 0) > MOSTLY_HIDDEN,
            error=failure,
            stage=state.stage if state else None,
            progress=state.progress if state else None,
            held=held_for is not None,
            held_for=held_for,
        )

    async def _state(self, image_id: str) -> ImageState | None:
        """The state of an image that is being processed; None if there is none or no Valkey."""
        try:
            fields = await self._status.read(image_id)
        except ValkeyError:
            return None
        return image_state(fields) if fields is not None else None

    async def _held_for(self, image_id: str) -> str | None:
        try:
            return await self._status.held_for(image_id)
        except ValkeyError:
            return None


def _away(what: str, error: Exception) -> BackendUnavailable:
    return BackendUnavailable(f"{what} does not answer; retry", detail=str(error))


def _cursor(record: ImageRecord) -> str:
    text = f"{format_time(record.created_at)} {record.image_id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _position(cursor: str) -> Position:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
        moment, _, image_id = text.partition(" ")
        created_at: datetime = parse_time(moment)
    except (binascii.Error, ValueError):
        raise Problem(api.BAD_CURSOR) from None
    if not IMAGE_ID.fullmatch(image_id):
        raise Problem(api.BAD_CURSOR)
    return created_at, image_id
