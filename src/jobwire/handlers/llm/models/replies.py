"""Maps responses of model servers to values and errors. Pure.

Called by `endpoint.py` and `server.py`. Each known failure of such a server has its case here. Text
of the server is quoted in one line of limited length.
"""

from collections.abc import Mapping, Set
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

import msgspec

from jobwire.handlers.llm.models import Usage
from jobwire.handlers.llm.models.errors import ModelError, ModelRefused, RetryLimit
from jobwire.handlers.llm.models.schemas import Chunk, ErrorBody, ErrorReply, UsageBody, VectorsBody

_MAX_QUOTE: Final = 300

_QUOTA: Final = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
_CONTEXT: Final = ("context_length_exceeded", "exceed_context_size_error")
_FILTER: Final = ("content_filter", "content_policy_violation")
_UNAVAILABLE: Final = frozenset(
    {"overloaded_error", "server_error", "service_unavailable", "api_error", "timeout"}
)
_TOO_LONG_TO_EMBED: Final = ("too large to process", "input length exceeds", "input is too long")


_read_chunk: Final = msgspec.json.Decoder(Chunk).decode
_read_vectors: Final = msgspec.json.Decoder(VectorsBody).decode
_read_refusal: Final = msgspec.json.Decoder(ErrorReply).decode


def chunk(data: bytes) -> Chunk:
    """Parse the data of one event; ModelError if it is not JSON or reports an error."""
    try:
        read = _read_chunk(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Skipping it would lose a piece of the answer unnoticed.
        raise ModelError(
            "backend_bad_response", f"the model's server sent invalid JSON: {quote(data)}"
        ) from None
    if read.error is not None:
        raise _of_error(_body(read.error))
    return read


def vectors(data: bytes, count: int) -> VectorsBody:
    """The vectors of `count` texts, in their order."""
    try:
        read = _read_vectors(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ModelError(
            "backend_bad_response", f"the model's server sent no vectors: {quote(data)}"
        ) from None
    read.data.sort(key=lambda each: each.index)
    sizes = {len(each.embedding) for each in read.data}
    if len(read.data) != count or len(sizes) != 1 or 0 in sizes:
        problem = f"{len(read.data)} vectors of {sorted(sizes)} numbers for {count} texts"
        raise ModelError("backend_bad_response", f"the model's server sent {problem}")
    return read


def usage(body: UsageBody | None) -> Usage | None:
    """The token counts, if the server sent them."""
    if body is None:
        return None
    prompt, completion = body.prompt_tokens or 0, body.completion_tokens or 0
    return Usage(prompt, completion, body.total_tokens or prompt + completion)


def quote(data: bytes) -> str:
    """Text of the server in one line of limited length."""
    text = " ".join(data[: 4 * _MAX_QUOTE].decode("utf-8", "replace").split())
    return text if len(text) <= _MAX_QUOTE else text[:_MAX_QUOTE] + "…"


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


class ServerLabel(NamedTuple):
    """A server in error messages: its name and its settings."""

    name: str
    url_at: str
    key_at: str


def refusal(
    status: int, headers: Mapping[str, str], body: bytes, *, server: ServerLabel, now: datetime
) -> ModelError:
    """The error for a response without success."""
    error = _error_in(body)
    text = quote((error.message or "").encode() if error else b"")
    codes = _codes(error) if error else frozenset[str]()
    detail = f": {text}" if text else ""
    name = server.name
    match status:
        case 401 | 403:
            return ModelError(
                "backend_auth",
                f"{name} rejected the API key ({status}){detail}",
                fix=f"set {server.key_at}",
            )
        case 404 if error is None:
            return ModelError(
                "model_not_found",
                f"{name} has no such path (404)",
                fix=_check_url(server),
            )
        case 404:
            return ModelError("model_not_found", f"{name} does not have that model{detail}")
        case 402:
            return ModelError("backend_quota", f"{name} requires payment (402){detail}")
        case 429 if not codes.isdisjoint(_QUOTA):
            return ModelError("backend_quota", f"the quota at {name} is used up{detail}")
        case 429:
            return _wait("backend_rate_limited", f"{name} limits the rate (429)", headers, now)
        case _ if status in (400, 413, 422) or not codes.isdisjoint(_CONTEXT):
            return _bad_request(codes, text, f"{name} rejected the request ({status}){detail}")
        case 500 if any(part in text for part in _TOO_LONG_TO_EMBED):
            return ModelError("embed_text_too_long", f"a text is too long to embed: {text}")
        case 501:
            return ModelRefused(
                "backend_bad_response", f"{name} does not support the request (501){detail}"
            )
        case 408 | 409 | 425 | 500 | 502 | 503 | 504 | 520 | 522 | 524 | 529:
            return _wait(
                "backend_unavailable", f"{name} is unavailable ({status}){detail}", headers, now
            )
        case _ if 300 <= status < 400:
            target = quote(headers.get("location", "").encode())
            return ModelError(
                "backend_bad_response",
                f"{name} redirects ({status} {target})",
                fix=f"set {server.url_at} to the new address",
            )
        case _:
            return ModelError("backend_bad_response", f"{name} responded with {status}{detail}")


def not_a_stream(content_type: str, body: bytes, server: ServerLabel) -> ModelError:
    """The error for a successful response that is no event stream."""
    if (error := _error_in(body)) is not None:
        return _of_error(error)
    return ModelError(
        "backend_bad_response",
        f"{server.name} responded with {content_type or 'no content type'} instead of an event "
        f"stream: {quote(body)}",
        fix=_check_url(server),
    )


def _check_url(server: ServerLabel) -> str:
    return f"check {server.url_at}: it usually ends in /v1"


def _bad_request(codes: Set[str], text: str, message: str) -> ModelError:
    lower = text.lower()
    if not codes.isdisjoint(_CONTEXT) or ("context" in lower and "token" in lower):
        return ModelError("context_too_long", f"the prompt is too long for the model: {text}")
    if not codes.isdisjoint(_FILTER):
        return ModelError("content_filtered", f"the model's server filtered the prompt: {text}")
    if "model_not_found" in codes:
        return ModelError("model_not_found", message)
    if any(part in lower for part in _TOO_LONG_TO_EMBED):
        return ModelError("embed_text_too_long", f"a text is too long to embed: {text}")
    return ModelRefused("invalid_payload", message)


def _of_error(error: ErrorBody) -> ModelError:
    """The error for an `error` member inside a stream."""
    text = quote((error.message or "").encode())
    codes = _codes(error)
    message = f"the model's server reported an error: {text or ', '.join(sorted(codes))}"
    if not codes.isdisjoint(_QUOTA):
        return ModelError("backend_quota", message)
    if "rate_limit_exceeded" in codes or "429" in codes:
        return ModelError("backend_rate_limited", message, RetryLimit.TWICE)
    if any(code.isdigit() and 500 <= int(code) < 600 for code in codes) or codes & _UNAVAILABLE:
        return ModelError("backend_unavailable", message, RetryLimit.TWICE)
    result = _bad_request(codes, text, message)
    if result.code == "invalid_payload":
        return ModelError("backend_bad_response", message)
    return result


def _error_in(body: bytes) -> ErrorBody | None:
    """The error in a body, in any of the forms that servers use."""
    try:
        read = _read_refusal(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if read.error is not None:
        return _body(read.error)
    if read.message is not None:
        return ErrorBody(read.message, read.type, read.code)
    return ErrorBody(str(read.detail)) if read.detail is not None else None


def _codes(error: ErrorBody) -> frozenset[str]:
    """The machine-readable names of the error."""
    return frozenset(str(code).lower() for code in (error.code, error.type) if code)


def _body(error: ErrorBody | str) -> ErrorBody:
    return ErrorBody(error) if isinstance(error, str) else error


def _wait(code: str, message: str, headers: Mapping[str, str], now: datetime) -> ModelError:
    after_s = retry_after_s(headers, now)
    when = "" if after_s is None else f"; retry after {after_s:g} s"
    return ModelError(code, message + when, RetryLimit.TWICE, after_s)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds until `Retry-After`, which is a number of seconds or a date."""
    text = headers.get("retry-after", "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            return None
        seconds = (when.replace(tzinfo=when.tzinfo or UTC) - now).total_seconds()
    return round(max(0.0, seconds), 3) if seconds < 1e9 else None
