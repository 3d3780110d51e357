"""What a model's server answered, and what that means. Pure: bytes and numbers in, values out.

Called by `endpoint.py`. Every way in which such a server fails has its line here, and no text of
the server gets past here longer than a line.
"""

from collections.abc import Mapping, Set
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

import msgspec

from jobwire.handlers.llm.models import Usage
from jobwire.handlers.llm.models.errors import Again, ModelError, ModelRefused
from jobwire.handlers.llm.models.schemas import Chunk, ErrorBody, ErrorReply, UsageBody, VectorsBody

_LONGEST_QUOTE: Final = 300

_QUOTA: Final = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
_CONTEXT: Final = ("context_length_exceeded", "exceed_context_size_error")
_FILTER: Final = ("content_filter", "content_policy_violation")
_BUSY: Final = frozenset(
    {"overloaded_error", "server_error", "service_unavailable", "api_error", "timeout"}
)
_TOO_LONG_TO_EMBED: Final = ("too large to process", "input length exceeds", "input is too long")


_read_chunk: Final = msgspec.json.Decoder(Chunk).decode
_read_vectors: Final = msgspec.json.Decoder(VectorsBody).decode
_read_refusal: Final = msgspec.json.Decoder(ErrorReply).decode


def chunk(data: bytes) -> Chunk:
    """One event's data; Trouble where it is none, or says that something failed."""
    try:
        read = _read_chunk(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Not to be passed over: a piece of the answer would be missing unseen.
        raise ModelError(
            "backend_bad_response", f"the model's server sent no JSON: {quote(data)}"
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
    """What it took, if the server said so."""
    if body is None:
        return None
    prompt, completion = body.prompt_tokens or 0, body.completion_tokens or 0
    return Usage(prompt, completion, body.total_tokens or prompt + completion)


def quote(data: bytes) -> str:
    """A server's words, as far as they fit in a line of ours."""
    text = " ".join(data[: 4 * _LONGEST_QUOTE].decode("utf-8", "replace").split())
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…"


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────


class Who(NamedTuple):
    """A server for people: its name, and the settings that lead to it."""

    name: str
    url_at: str
    key_at: str


def refusal(
    status: int, headers: Mapping[str, str], body: bytes, *, server: Who, now: datetime
) -> ModelError:
    """What an answer without success means."""
    error = _error_in(body)
    said = quote((error.message or "").encode() if error else b"")
    words = _words(error) if error else frozenset[str]()
    says = f": {said}" if said else ""
    name = server.name
    match status:
        case 401 | 403:
            return ModelError(
                "backend_auth",
                f"{name} refused our key ({status}){says}",
                cure=f"set {server.key_at}",
            )
        case 404 if error is None:
            return ModelError(
                "model_not_found",
                f"{name} does not know that address (404)",
                cure=_is_it_right(server),
            )
        case 404:
            return ModelError("model_not_found", f"{name} does not have that model{says}")
        case 402:
            return ModelError("backend_quota", f"{name} wants to be paid first{says}")
        case 429 if not words.isdisjoint(_QUOTA):
            return ModelError("backend_quota", f"the quota at {name} is used up{says}")
        case 429:
            return _wait("backend_rate_limited", f"{name} gets too many requests", headers, now)
        case _ if status in (400, 413, 422) or not words.isdisjoint(_CONTEXT):
            return _bad_request(words, said, f"{name} refused the request ({status}){says}")
        case 500 if any(part in said for part in _TOO_LONG_TO_EMBED):
            return ModelError("embed_text_too_long", f"a text is too long to embed: {said}")
        case 501:
            return ModelRefused("backend_bad_response", f"{name} cannot do that (501){says}")
        case 408 | 409 | 425 | 500 | 502 | 503 | 504 | 520 | 522 | 524 | 529:
            return _wait(
                "backend_unavailable", f"{name} is not well ({status}){says}", headers, now
            )
        case _ if 300 <= status < 400:
            place = quote(headers.get("location", "").encode())
            return ModelError(
                "backend_bad_response",
                f"{name} points elsewhere ({status} {place})",
                cure=f"set {server.url_at} to where it is",
            )
        case _:
            return ModelError("backend_bad_response", f"{name} answered with {status}{says}")


def not_a_stream(content_type: str, body: bytes, server: Who) -> ModelError:
    """Success, but no stream of events: an error in disguise, or not a model's server at all."""
    if (error := _error_in(body)) is not None:
        return _of_error(error)
    return ModelError(
        "backend_bad_response",
        f"{server.name} answered with {content_type or 'no content type'} instead of a stream of "
        f"events: {quote(body)}",
        cure=_is_it_right(server),
    )


def _is_it_right(server: Who) -> str:
    return f"is {server.url_at} right? it often ends in /v1"


def _bad_request(words: Set[str], said: str, message: str) -> ModelError:
    lower = said.lower()
    if not words.isdisjoint(_CONTEXT) or ("context" in lower and "token" in lower):
        return ModelError("context_too_long", f"the model cannot read that much: {said}")
    if not words.isdisjoint(_FILTER):
        return ModelError("content_filtered", f"the model's server filtered it: {said}")
    if "model_not_found" in words:
        return ModelError("model_not_found", message)
    if any(part in lower for part in _TOO_LONG_TO_EMBED):
        return ModelError("embed_text_too_long", f"a text is too long to embed: {said}")
    return ModelRefused("invalid_payload", message)


def _of_error(error: ErrorBody) -> ModelError:
    """An `error` object inside an answer that began well."""
    said = quote((error.message or "").encode())
    words = _words(error)
    message = f"the model's server broke off: {said or ', '.join(sorted(words))}"
    if not words.isdisjoint(_QUOTA):
        return ModelError("backend_quota", message)
    if "rate_limit_exceeded" in words or "429" in words:
        return ModelError("backend_rate_limited", message, Again.SOON)
    if any(word.isdigit() and 500 <= int(word) < 600 for word in words) or words & _BUSY:
        return ModelError("backend_unavailable", message, Again.SOON)
    trouble = _bad_request(words, said, message)
    if trouble.code == "invalid_payload":
        return ModelError("backend_bad_response", message)
    return trouble


def _error_in(body: bytes) -> ErrorBody | None:
    """The error that a body tells of, in one of the ways in which servers write it."""
    try:
        read = _read_refusal(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if read.error is not None:
        return _body(read.error)
    if read.message is not None:
        return ErrorBody(read.message, read.type, read.code)
    return ErrorBody(str(read.detail)) if read.detail is not None else None


def _words(error: ErrorBody) -> frozenset[str]:
    """What names the error for programs."""
    return frozenset(str(word).lower() for word in (error.code, error.type) if word)


def _body(error: ErrorBody | str) -> ErrorBody:
    return ErrorBody(error) if isinstance(error, str) else error


def _wait(code: str, message: str, headers: Mapping[str, str], now: datetime) -> ModelError:
    after_s = retry_after_s(headers, now)
    when = "" if after_s is None else f"; it asks to wait {after_s:g} s"
    return ModelError(code, message + when, Again.SOON, after_s)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """How long we are asked to wait: `Retry-After` is a number of seconds or a date."""
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
