"""Parses headers, query and body of a request strictly (J-8, J-10, J-19).

The endpoints call it before anything is written. Every fault raises a Problem; nothing is corrected
silently. A payload is passed on byte for byte.
"""

import asyncio
import hashlib
import re
from typing import Annotated, Final

import msgspec

from jobwire.api import jobs as api
from jobwire.api.problems import FORBIDDEN, INVALID_JSON
from jobwire.gateway import tenants
from jobwire.gateway.problems import Problem, invalid
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import read_body
from jobwire.gateway.settings import ALL_TENANTS
from jobwire.job.errors import RefusedError
from jobwire.job.messages import JobId, JobRequest
from jobwire.json_depth import is_too_deep
from jobwire.systems.jobs.payload import check_payload, read_strictly

_TURN_BYTES: Final = 256 << 10
"""Checking this much of a batch takes about as long as checking the largest single job."""
_JOB_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_IDEMPOTENCY_KEY: Final = re.compile(rb"[\x20-\x7e]{1,255}")
_SIGNAL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_TRACEPARENT: Final = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class _RawBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch whose items are not parsed yet: a fault in one must not affect the others."""

    jobs: msgspec.Raw


_decode_batch: Final = msgspec.json.Decoder(_RawBatch).decode
_decode_items: Final = msgspec.json.Decoder(
    Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=api.MAX_BATCH)]
).decode
_decode_item: Final = msgspec.json.Decoder(api.BatchItem).decode

_REFUSED: Final = {kind.code: kind for kind in (api.INVALID_PAYLOAD, api.PAYLOAD_TOO_LARGE)}


def tenant(request: HttpRequest) -> str:
    """The tenant of jobs that the caller submits, as on the wire."""
    return _on_wire(tenants.own_tenant(request))


def check_all_tenants(request: HttpRequest, what: str, verb: str) -> None:
    """Refuse a key of one tenant."""
    if request.principal.tenant != ALL_TENANTS:
        detail = f"{what} is shared by all tenants: only a key of the tenant '*' may {verb} it"
        raise Problem(FORBIDDEN, detail)


def may_see(request: HttpRequest, owner: str) -> bool:
    """Whether the caller may see and cancel jobs of the tenant `owner` of the wire (O-6, J-57)."""
    return tenants.may_see(request, owner or tenants.DEFAULT_TENANT)


def listed_tenant(request: HttpRequest, given: str | None) -> str:
    """The tenant whose jobs are listed, as on the wire."""
    return _on_wire(tenants.listed_tenant(request, given, "jobs"))


def _on_wire(name: str) -> str:
    """On the wire the default tenant is empty."""
    return "" if name == tenants.DEFAULT_TENANT else name


def job_id(given: str) -> JobId:
    """The job id in the path. An invalid id is never looked up: it could name another key."""
    if not _JOB_ID.fullmatch(given):
        raise Problem(api.JOB_NOT_FOUND)
    return JobId(given)


def signal_value(name: str, body: bytes) -> str:
    """The value of a signal, without blanks, so that equal values are the same text."""
    if not _SIGNAL_NAME.fullmatch(name):
        raise Problem(api.BAD_SIGNAL)
    try:
        text = body.decode() if body.strip() else "null"
        if is_too_deep(text):
            raise Problem(api.BAD_SIGNAL, "the value is nested too deeply")
        value = msgspec.json.format(text, indent=-1)
        check_payload(f'{{"value":{text}}}')
    except RefusedError as refused:
        reason = refused.message.removeprefix("payload ")
        raise Problem(api.BAD_SIGNAL, f"the value {reason}") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise Problem(api.BAD_SIGNAL, f"the value is not JSON: {error}") from None
    return value


def idempotency_key(request: HttpRequest) -> str:
    """The `Idempotency-Key` header; empty without one."""
    given = request.headers.get(b"idempotency-key")
    if given is None:
        return ""
    if not given:
        raise Problem(api.BAD_IDEMPOTENCY_KEY)
    return _checked_key(given)


def traceparent(request: HttpRequest) -> str:
    """The `traceparent` header; empty if absent or invalid."""
    given = request.headers.get(b"traceparent")
    if given is None or not _TRACEPARENT.fullmatch(given):
        return ""
    return given.decode("ascii")


def job_request(request: HttpRequest, parsed: api.SubmitRequest) -> JobRequest:
    """The job request of the parsed body; its task is not checked here."""
    body = request.content
    key = idempotency_key(request)
    mark = fingerprint(body) if key else ""
    return _checked(parsed, body, key, mark, tenant(request), traceparent(request))


async def batch(request: HttpRequest, body: bytes) -> list[JobRequest | Problem]:
    """The same for each item of a body; a fault in one does not affect the others. Other requests
    run after every `_TURN_BYTES`."""
    jobs = read_body(_decode_batch, body, api.INVALID_PAYLOAD).jobs
    items = read_body(_decode_items, bytes(jobs), api.INVALID_PAYLOAD, "/jobs")
    _check_around(body, bytes(jobs), 1)
    owner, trace = tenant(request), traceparent(request)
    parsed: list[JobRequest | Problem] = []
    checked_bytes = 0
    for raw in items:
        whole = bytes(raw)
        checked_bytes += len(whole)
        if checked_bytes > _TURN_BYTES:
            checked_bytes = 0
            await asyncio.sleep(0)
        try:
            item = read_body(_decode_item, whole, api.INVALID_PAYLOAD)
            key = _checked_key((item.idempotency_key or "").encode())
            mark = fingerprint(whole) if key else ""
            parsed.append(_checked(item, whole, key, mark, owner, trace))
        except Problem as problem:
            parsed.append(problem)
    return parsed


def fingerprint(body: bytes) -> str:
    """Equal for requests with the same body."""
    return hashlib.sha256(body).hexdigest()


def _checked_key(given: bytes) -> str:
    if given and not _IDEMPOTENCY_KEY.fullmatch(given):
        raise Problem(api.BAD_IDEMPOTENCY_KEY)
    return given.decode()


def _checked(
    parsed: api.SubmitRequest, whole: bytes, key: str, mark: str, owner: str, trace: str
) -> JobRequest:
    inner = bytes(parsed.payload)
    try:
        payload = inner.decode()
        check_payload(payload)
    except UnicodeDecodeError:
        raise Problem(INVALID_JSON, "the payload is not valid UTF-8") from None
    except RefusedError as refused:
        raise Problem(_REFUSED[refused.code], refused.message) from None
    given = 2 + (parsed.ttl_s is not None) + (parsed.delay_s is not None)
    given += (parsed.max_attempts is not None) + (parsed.timeout_s is not None)
    given += (parsed.deadline_s is not None) + (parsed.queue is not None)
    if type(parsed) is api.BatchItem:
        given += parsed.idempotency_key is not None
    _check_around(whole, inner, given)
    return JobRequest(
        parsed.task,
        payload,
        delay_s=parsed.delay_s or 0.0,
        ttl_s=None if parsed.ttl_s is None else int(parsed.ttl_s),
        max_attempts=None if parsed.max_attempts is None else int(parsed.max_attempts),
        timeout_s=parsed.timeout_s,
        deadline_s=parsed.deadline_s,
        idempotency_key=key,
        fingerprint=mark,
        tenant=owner,
        traceparent=trace,
        queue=parsed.queue or "",
    )


def _check_around(body: bytes, inner: bytes, given: int) -> None:
    """Refuse a duplicate member around a payload, of which `given` members were parsed; the payload
    itself is checked by `check_payload`."""
    # Each member has a colon: if there are as many colons as parsed members, none is a duplicate.
    # Other bodies (a null member, a colon in a task name) are parsed again.
    if body.count(b":") - inner.count(b":") == given:
        return
    try:
        read_strictly(body.replace(inner, b"0", 1).decode())
    except ValueError as error:
        raise invalid("body", "", str(error)) from None
