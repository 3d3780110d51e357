"""Receiving uploads: token, claim, body to the spool; answered when the bytes are safe (I-20).

    check     before the body: token, length, type, capacity; nothing is written
    receive   the claim, the body, the disk

A fault in either is an `UploadRefused` with its HTTP status; the claim is released and nothing is
published. Once `receive` returns, the image is accepted and always gets a result. What happens to
it then is in `processing.py`.
"""

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from jobwire.job.errors import BackendUnavailable, RefusedError
from jobwire.systems.images.contract import CONTENT_TYPES
from jobwire.systems.images.spool import Body, Spool, SpooledUpload
from jobwire.systems.images.status import ImageStatus
from jobwire.systems.images.tokens import BadToken, RefusedToken, TokenVerifier, UploadGrant
from jobwire.valkey import ServerError, ValkeyError

_log: Final = logging.getLogger("jobwire.images")
_MAGIC_BYTES: Final = 40
"""So many bytes tell the type of an image."""
_CERTAIN: Final = frozenset({"image/jpeg", "image/png", "image/webp"})
"""What every photo worker decodes."""
_OUT_OF_MEMORY: Final = "OOM"

T = TypeVar("T")
Sniff = Callable[[bytes], str | None]
"""The content type by the first bytes; None if it is not an allowed image."""


class UploadFault(NamedTuple):
    """Why an upload is not accepted, and how the HTTP request is answered."""

    code: str
    status: int
    message: str


BAD_TOKEN: Final = UploadFault(
    "bad_upload_token", 401, "the upload token is invalid or has expired; request a new one"
)
OTHER_IMAGE: Final = UploadFault("other_image", 403, "the upload token is for another image")
USED: Final = UploadFault(
    "already_uploaded", 409, "this image was uploaded before; request a new one"
)
NO_LENGTH: Final = UploadFault("length_required", 411, "send the upload with Content-Length")
INCOMPLETE: Final = UploadFault(
    "incomplete", 400, "fewer bytes than announced were received; send the photo again"
)
TOO_LARGE: Final = UploadFault("too_large", 413, "the photo is too large")
TOO_SLOW: Final = UploadFault("request_timeout", 408, "the upload took too long; send it again")
WRONG_TYPE: Final = UploadFault(
    "unsupported_media_type", 415, "the photo does not have the type that the token is for"
)
NOT_AN_IMAGE: Final = UploadFault(
    "not_an_image", 422, "the body is not a JPEG, PNG, WebP, AVIF or HEIC image"
)


class UploadRefused(RefusedError):
    """The upload is not accepted; nothing of it is kept."""

    def __init__(self, fault: UploadFault, message: str = "") -> None:
        """`message`: more precise than that of the fault."""
        super().__init__(message or fault.message, code=fault.code, status=fault.status)


class UploadBusy(BackendUnavailable):
    """There is no capacity now; try again later."""

    code = "upload_capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadLimits:
    """What the upload gateway accepts at a time (I-21)."""

    max_images: int = 256
    """Accepted images without a result, and bodies that are being received."""
    max_spool_bytes: int = 1 << 30
    body_deadline_s: float = 300.0
    """For one body; slower clients are refused earlier by the HTTP server."""


class _Reserved(NamedTuple):
    """A body that is being received."""

    tenant: str
    length: int


@dataclass(slots=True)
class UploadCounts:
    """For metrics."""

    accepted: int = 0
    received_bytes: int = 0


class UploadIntake:
    """Accepts uploads into the spool. Used on one event loop."""

    def __init__(
        self,
        status: ImageStatus,
        spool: Spool,
        verifier: TokenVerifier,
        *,
        sniff: Sniff,
        limits: UploadLimits,
        decodable: Callable[[], Awaitable[Collection[str]]],
        unavailable: Callable[[], str | None],
        accepted: Callable[[SpooledUpload], None],
    ) -> None:
        """`decodable` are the content types that the photo workers read, `unavailable` says why
        nothing is accepted now; `accepted` gets each accepted upload."""
        self._status = status
        self._spool = spool
        self._verifier = verifier
        self._sniff = sniff
        self._decodable = decodable
        self._limits = limits
        self._unavailable = unavailable
        self._accepted = accepted
        self._reserved: dict[str, _Reserved] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.counts = UploadCounts()

    @property
    def receiving(self) -> int:
        """Bodies that are being received."""
        return len(self._reserved)

    # ── before the body ──────────────────────────────────────────────────────────────────────────

    def verify(self, token: str, image_id: str) -> UploadGrant:
        """What the token permits for this image."""
        try:
            grant = self._verifier.verify(token)
        except BadToken as error:
            _log.info(
                "upload refused image_id=%(image_id)s error=%(error)s",
                {"image_id": image_id[:64], "error": error},
            )
            why = f"the upload token is not accepted: {error}; request a new one"
            raise UploadRefused(BAD_TOKEN, why if isinstance(error, RefusedToken) else "") from None
        if grant.image_id != image_id:
            raise UploadRefused(OTHER_IMAGE)
        return grant

    def check(self, grant: UploadGrant, content_type: str, length: int | None) -> int:
        """Refuse by the headers; returns the length of the body."""
        if length is None:
            raise UploadRefused(NO_LENGTH)
        if length > grant.max_size:
            message = f"the upload may have {grant.max_size} bytes, and has {length}"
            raise UploadRefused(TOO_LARGE, message)
        if content_type.partition(";")[0].strip().lower() != grant.content_type:
            raise _wrong_type(grant)
        if length == 0:
            raise UploadRefused(NOT_AN_IMAGE)
        if reason := self._unavailable():
            raise UploadBusy(f"uploads are not accepted now: {reason}; try again later")
        reserved = self._reserved.values()
        size = self._spool.size + sum(each.length for each in reserved)
        if (
            self._spool.in_work + self.receiving >= self._limits.max_images
            or size + length > self._limits.max_spool_bytes
        ):
            raise UploadBusy("too many images are being processed; try again later")
        if grant.tenant:
            # I-44: one of several tenants has half of the slots and of the space.
            own = self._spool.of_tenant(grant.tenant)
            own += [each.length for each in reserved if each.tenant == grant.tenant]
            if len(own) >= max(1, self._limits.max_images // 2) or (
                own and sum(own) + length > self._limits.max_spool_bytes // 2
            ):
                raise UploadBusy("too many images of your tenant are being processed; try later")
        return length

    async def check_decodable(self, content_type: str) -> None:
        """Refuse a type that the photo workers cannot read (I-43)."""
        if content_type not in _CERTAIN and content_type not in await self._decodable():
            raise UploadRefused(WRONG_TYPE, f"{content_type} is not read here; send a JPEG photo")

    # ── the body ─────────────────────────────────────────────────────────────────────────────────

    async def receive(
        self, grant: UploadGrant, length: int, chunks: AsyncIterator[bytes]
    ) -> SpooledUpload:
        """Claim the image and receive its body; the upload is accepted when this returns."""
        if grant.image_id in self._spool:
            raise UploadRefused(USED)
        attempt = secrets.token_hex(8)
        self._reserved[attempt] = _Reserved(grant.tenant, length)
        try:
            body = self._begin(grant.image_id, attempt)
            try:
                await self._claim(grant.image_id, attempt)
                await self._read(body, grant, length, chunks)
            except BaseException as error:
                await self._to_end(self._release(body))
                if isinstance(error, OSError):
                    raise _disk_fault(error) from error
                raise
            # A request that is cancelled now does not undo the acceptance.
            return await self._to_end(self._accept(body, grant))
        finally:
            del self._reserved[attempt]

    async def idle(self) -> None:
        """Wait until no acceptance is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _accept(self, body: Body, grant: UploadGrant) -> SpooledUpload:
        try:
            entry = await asyncio.to_thread(self._spool.accept, body, grant)
        except OSError as error:
            await self._release(body)
            raise _disk_fault(error) from error
        self.counts.accepted += 1
        self._accepted(entry)
        return entry

    async def _to_end(self, work: Coroutine[None, None, T]) -> T:
        """Run to its end even if the request is cancelled meanwhile."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    def _begin(self, image_id: str, attempt: str) -> Body:
        try:
            return self._spool.receive(image_id, attempt)
        except OSError as error:
            raise _disk_fault(error) from error

    async def _claim(self, image_id: str, attempt: str) -> None:
        try:
            claimed = await self._status.claim(image_id, attempt)
        except ValkeyError as error:
            if isinstance(error, ServerError) and error.code == _OUT_OF_MEMORY:
                raise UploadBusy("the server is full; try again later") from error
            raise UploadBusy(
                "uploads are not accepted now: Valkey does not answer; try again later",
                detail=str(error),
            ) from error
        if not claimed:
            raise UploadRefused(USED)

    async def _read(
        self, body: Body, grant: UploadGrant, length: int, chunks: AsyncIterator[bytes]
    ) -> None:
        start = b""
        try:
            async with asyncio.timeout(self._limits.body_deadline_s):
                async for chunk in chunks:
                    if body.size + len(chunk) > grant.max_size:
                        message = f"the upload may have {grant.max_size} bytes"
                        raise UploadRefused(TOO_LARGE, message)
                    if len(start) < _MAGIC_BYTES:
                        start += chunk[:_MAGIC_BYTES]
                        if len(start) >= _MAGIC_BYTES:
                            self._check_magic(start, grant)
                    # Not in a thread: a write goes to the page cache, and the hop costs more.
                    body.write(chunk)
                    self.counts.received_bytes += len(chunk)
        except TimeoutError:
            raise UploadRefused(TOO_SLOW) from None
        if len(start) < _MAGIC_BYTES:
            self._check_magic(start, grant)
        if body.size != length:
            message = f"{body.size} bytes were received and {length} announced; send it again"
            raise UploadRefused(INCOMPLETE, message)

    def _check_magic(self, start: bytes, grant: UploadGrant) -> None:
        found = self._sniff(start)
        if found is None:
            raise UploadRefused(NOT_AN_IMAGE)
        if found != grant.content_type:
            raise _wrong_type(grant)

    async def _release(self, body: Body) -> None:
        """Release the claim; if the server does not answer, `Processing` does it later."""
        try:
            await self._status.release(body.image_id, body.attempt)
        except ValkeyError as error:
            _log.warning(
                "claim not released image_id=%(image_id)s error=%(error)s; it is released later",
                {"image_id": body.image_id, "error": error},
            )
            self._spool.abandon(body)
        else:
            self._spool.discard(body)


def _disk_fault(error: OSError) -> UploadBusy:
    reason = os.strerror(error.errno) if error.errno else str(error)
    _log.error("upload refused: spool not writable error=%(error)s", {"error": reason})
    return UploadBusy("uploads cannot be stored now; try again later", detail=reason)


def _wrong_type(grant: UploadGrant) -> UploadRefused:
    return UploadRefused(
        WRONG_TYPE,
        f"the token is for {grant.content_type}; send a photo of that type, or request another "
        f"upload for one of {', '.join(CONTENT_TYPES)}",
    )
