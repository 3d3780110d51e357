"""The images API: announce an upload, read, list, delete (I-10, I-11). Ordinary FastAPI routes."""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Response

from jobwire.api.problems import UNAVAILABLE
from jobwire.gateway import tenants
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.router import CurrentRequest, needs, new_router
from jobwire.gateway.settings import ALL_TENANTS
from jobwire.job.errors import BackendUnavailable
from jobwire.job.ids import new_job_id
from jobwire.objects import Bucket, ObjectsError
from jobwire.valkey import ValkeyError
from jobwire.wires.images.contract import IMAGE_ID, Stage, format_time, now_utc, parse_time
from jobwire.wires.images.follow import status_event
from jobwire.wires.images.http import problems
from jobwire.wires.images.http.picture import picture_route
from jobwire.wires.images.http.schemas import (
    PATH,
    ImageFailure,
    ImageInfo,
    ImageList,
    ImageUpload,
    NewImage,
)
from jobwire.wires.images.records import ImageRecord, ImageRecords, Position, RecordStatus
from jobwire.wires.images.status import ImageStatus
from jobwire.wires.images.tokens import TokenIssuer

UPLOAD_PATH: Final = "/v1/uploads"
_MAX_PAGE: Final = 200

ImageId = Annotated[str, Path(max_length=64)]
UploadBase = Callable[[HttpRequest], str]
"""The address of the upload gateway for a caller, without the path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiLimits:
    """Settings of the routes."""

    max_size: int
    """The largest upload, in bytes."""
    url_life: timedelta


class ImageRoutes:
    """The endpoints."""

    def __init__(
        self,
        records: ImageRecords,
        status: ImageStatus,
        bucket: Bucket,
        issuer: TokenIssuer,
        upload_base: UploadBase,
        limits: ApiLimits,
    ) -> None:
        self._records = records
        self._status = status
        self._bucket = bucket
        self._issuer = issuer
        self._upload_base = upload_base
        self._limits = limits

    def router(self) -> APIRouter:
        """The routes."""
        routes = new_router("images")

        @routes.post(
            PATH,
            status_code=201,
            openapi_extra=needs("submit", problems.IMAGE_TOO_LARGE, UNAVAILABLE),
        )
        async def announce_an_upload(new: NewImage, request: CurrentRequest) -> ImageUpload:
            """Announce a photo; the answer says where to send it."""
            max_size = self._limits.max_size
            if new.size is not None and new.size > max_size:
                detail = f"the photo may have {max_size} bytes, and has {new.size}"
                raise Problem(problems.IMAGE_TOO_LARGE, detail)
            image_id, now = str(new_job_id()), now_utc()
            try:
                await self._status.advance(image_id, Stage.QUEUED)
            except ValkeyError as error:
                raise _away("Valkey", error) from error
            await self._records.create(
                image_id,
                tenant=tenants.own_tenant(request),
                content_type=new.content_type,
                filename=new.filename,
                now=now,
            )
            token, expires_at = self._issuer.issue(
                image_id, content_type=new.content_type, max_size=max_size, now=now
            )
            return ImageUpload(
                image_id=image_id,
                upload_url=f"{self._upload_base(request)}{UPLOAD_PATH}/{image_id}",
                token=token,
                expires_at=expires_at,
                max_size=max_size,
            )

        @routes.get(PATH, openapi_extra=needs("read", problems.BAD_CURSOR, UNAVAILABLE))
        async def list_images(
            request: CurrentRequest,
            limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 50,
            cursor: Annotated[str | None, Query(max_length=256)] = None,
        ) -> ImageList:
            """Images, newest first."""
            tenant = request.principal.tenant
            records = await self._records.page(
                tenant=None if tenant == ALL_TENANTS else tenant,
                limit=limit + 1,
                after=_position(cursor) if cursor else None,
            )
            page = records[:limit]
            more = len(records) > limit
            return ImageList(
                images=[await self._info(record) for record in page],
                cursor=_cursor(page[-1]) if more else None,
                max_size=self._limits.max_size,
            )

        @routes.get(
            PATH + "/{image_id}",
            openapi_extra=needs("read", problems.IMAGE_NOT_FOUND, UNAVAILABLE),
        )
        async def get_an_image(image_id: ImageId, request: CurrentRequest) -> ImageInfo:
            """One image, with the URL of the published photo once it is ready."""
            return await self._info(await self.find(image_id, request))

        picture_route(routes, self.find, self._bucket)

        @routes.delete(
            PATH + "/{image_id}",
            status_code=204,
            openapi_extra=needs("submit", problems.IMAGE_NOT_FOUND, UNAVAILABLE),
        )
        async def delete_an_image(image_id: ImageId, request: CurrentRequest) -> Response:
            """Delete the photo in all its versions; an image in work is canceled."""
            # A deleted one too: an earlier request may have failed half-way.
            record = await self.find(image_id, request, deleted=True)
            in_work = record.status is RecordStatus.OPEN or record.reconciled
            # The record first: a result that comes now does not bring the image back.
            await self._records.delete(image_id, now_utc())
            try:
                await self._status.delete(image_id, in_work=in_work)
                await self._bucket.delete(record.storage_key)
            except ValkeyError as error:
                raise _away("Valkey", error) from error
            except ObjectsError as error:
                raise _away("the bucket", error) from error
            return Response(status_code=204)

        return routes

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
            raise Problem(problems.IMAGE_NOT_FOUND)
        return record

    async def _info(self, record: ImageRecord) -> ImageInfo:
        info = ImageInfo(
            image_id=record.image_id,
            status="processing",
            filename=record.filename,
            created_at=record.created_at,
            updated_at=record.updated_at,
            content_type=record.content_type,
            file_size=record.file_size,
            sha256=record.sha256,
            width=record.processed_width,
            height=record.processed_height,
            original_width=record.original_width,
            original_height=record.original_height,
        )
        if record.status is RecordStatus.FAILED:
            info.status = "failed"
            info.error = ImageFailure(
                code=record.error_code or "", message=record.error_message or ""
            )
        elif record.status is RecordStatus.READY:
            info.status = "ready"
            info.url = await self._bucket.presign(record.storage_key, self._limits.url_life)
            info.url_expires_at = now_utc() + self._limits.url_life
        elif record.status is RecordStatus.OPEN:
            await self._add_stage(info)
        return info

    async def _add_stage(self, info: ImageInfo) -> None:
        """The stage of an image in work; left out while Valkey is away."""
        try:
            fields = await self._status.read(info.image_id)
        except ValkeyError:
            return
        if fields is not None:
            state = status_event(fields)
            info.stage, info.progress = state.stage, state.progress


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
        raise Problem(problems.BAD_CURSOR) from None
    if not IMAGE_ID.fullmatch(image_id):
        raise Problem(problems.BAD_CURSOR)
    return created_at, image_id
