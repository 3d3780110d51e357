"""Maps responses of model servers to values and errors. Pure.

Called by `endpoint.py` and `server.py`. Each known failure of such a server has its case here. Text
of the server is quoted in one line of limited length.
"""

import codecs
import math
import re
from collections.abc import Mapping, Set
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple, cast

import msgspec

from jobwire.handlers.llm.models import Usage
from jobwire.handlers.llm.models.errors import ModelError, ModelRefused, RetryLimit
from jobwire.handlers.llm.models.schemas import Chunk, ErrorBody, ErrorReply, VectorsBody
from jobwire.handlers.llm.models.secrets import SecretMask
from jobwire.json_depth import bounded

_MAX_QUOTE: Final = 300

_QUOTA: Final = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
_CONTEXT: Final = ("context_length_exceeded", "exceed_context_size_error")
_CONTEXT_TEXT: Final = re.compile(
    r"context (?:length|window|size).{0,80}(?:token|exceed)|tokens?.{0,80}context"  # OpenAI, vLLM
    r"|prompt is too long"  # Anthropic
    r"|input token count.{0,40}exceeds|exceeds the maximum number of tokens"  # Gemini
    r"|inputs` tokens \+|`inputs` must have less than"  # TGI
    r"|maximum (?:context|sequence|prompt) length|too many tokens|request too large",
    re.IGNORECASE | re.DOTALL,
)
_EXTENSIONS: Final = ("response_format", "stream_options", "json_schema", "max_tokens")
_FILTER: Final = ("content_filter", "content_policy_violation")
_UNAVAILABLE: Final = frozenset(
    {
        "overloaded_error",
        "server_error",
        "service_unavailable",
        "api_error",
        "timeout",
        "unavailable",
    }
)
_RATE_LIMITED: Final = frozenset(
    {"rate_limit_exceeded", "rate_limit_error", "429", "resource_exhausted"}
)
_TOO_LONG_TO_EMBED: Final = ("too large to process", "input length exceeds", "input is too long")


_read_chunk: Final = bounded(msgspec.json.Decoder(Chunk).decode)
_read_vectors: Final = bounded(msgspec.json.Decoder(VectorsBody).decode)
_read_refusal: Final = bounded(msgspec.json.Decoder(ErrorReply).decode)


class ServerLabel(NamedTuple):
    """A server in error messages: its name, its settings, and the secrets not to show."""

    name: str
    url_at: str
    key_at: str
    mask: SecretMask

    def quote(self, text: str | bytes) -> str:
        """Text of the server in one line of limited length, without secrets."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        line = " ".join(self.mask(text).split())
        return line if len(line) <= _MAX_QUOTE else line[:_MAX_QUOTE] + "…"


def chunk(data: bytes, server: ServerLabel) -> Chunk:
    """Parse one event, or a complete answer; ModelError if it is not JSON or reports an error."""
    try:
        read = _read_chunk(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Skipping it would lose a piece of the answer unnoticed.
        raise ModelError(
            "backend_bad_response", f"the model's server sent invalid JSON: {server.quote(data)}"
        ) from None
    if read.error is not None and read.error != "":
        raise _of_error(_error(read.error), server)
    return read


def complete_answer(data: bytes) -> Chunk | None:
    """The answer of a server that does not stream; None if the body is none."""
    try:
        read = _read_chunk(data.removeprefix(codecs.BOM_UTF8))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return read if read.choices and read.choices[0].message and not read.error else None


def vectors(data: bytes, count: int, server: ServerLabel) -> VectorsBody:
    """The vectors of `count` texts, in their order."""
    try:
        read = _read_vectors(data.removeprefix(codecs.BOM_UTF8))
    except (msgspec.DecodeError, UnicodeDecodeError):
        if (error := _error_in(data)) is not None:
            raise _of_error(error, server) from None
        raise ModelError(
            "backend_bad_response", f"the model's server sent no vectors: {server.quote(data)}"
        ) from None
    read.data.sort(key=lambda each: each.index)
    sizes = {len(each.embedding) for each in read.data}
    if len(read.data) != count or len(sizes) != 1 or 0 in sizes:
        problem = f"{len(read.data)} vectors of {sorted(sizes)} numbers for {count} texts"
        raise ModelError("backend_bad_response", f"the model's server sent {problem}")
    return read


def usage(body: object) -> Usage | None:
    """The token counts, if the server sent them; a number that is none counts as 0."""
    if not isinstance(body, dict):
        return None
    counts = cast("dict[str, object]", body)
    prompt, completion = _count(counts, "prompt_tokens"), _count(counts, "completion_tokens")
    return Usage(prompt, completion, _count(counts, "total_tokens") or prompt + completion)


def usage_so_far(timings: object) -> Usage | None:
    """The token counts by llama.cpp's `timings`, in the middle of an answer."""
    if not isinstance(timings, dict):
        return None
    counts = cast("dict[str, object]", timings)
    prompt = _count(counts, "cache_n") + _count(counts, "prompt_n")
    completion = _count(counts, "predicted_n")
    return Usage(prompt, completion, prompt + completion)


def _count(counts: Mapping[str, object], name: str) -> int:
    value = counts.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    return max(0, min(int(value), 1 << 53))


def text_of(content: object) -> str:
    """The text of a `content` member: text, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        part = cast("dict[str, object]", content)
        return text_of(part.get("text") or part.get("content"))
    if isinstance(content, list):
        return "".join(map(text_of, cast("list[object]", content)))
    return ""


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def refusal(
    status: int, headers: Mapping[str, str], body: bytes, *, server: ServerLabel, now: datetime
) -> ModelError:
    """The error for a response without success."""
    error = _error_in(body)
    text = server.quote(_message(error) if error else "")
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
        case 404 if error is None or text.lower() in _NO_SUCH_PATH:
            return ModelError(
                "model_not_found",
                f"{name} has no such path (404){detail}",
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
        case 413:
            return ModelError(
                "context_too_long", f"the prompt is too long for {name} (413){detail}"
            )
        case _ if status in (400, 422) or not codes.isdisjoint(_CONTEXT):
            return _bad_request(codes, text, f"{name} rejected the request ({status}){detail}")
        case 500 if any(part in text for part in _TOO_LONG_TO_EMBED):
            return ModelError("embed_text_too_long", f"a text is too long to embed: {text}")
        case 501 if "--embeddings" in text:  # llama.cpp without an embedding model
            return ModelError("backend_bad_response", f"{name} has no embeddings (501){detail}")
        case 500 | 501 if any(member in text for member in _EXTENSIONS):  # llama-cpp-python: 500
            return ModelRefused(
                "backend_bad_response", f"{name} does not support the request ({status}){detail}"
            )
        case _ if status in (408, 409, 425) or 500 <= status < 600:
            return _wait(
                "backend_unavailable", f"{name} is unavailable ({status}){detail}", headers, now
            )
        case _ if 300 <= status < 400:
            target = server.quote(headers.get("location", ""))
            return ModelError(
                "backend_bad_response",
                f"{name} redirects ({status} {target})",
                fix=f"set {server.url_at} to the new address",
            )
        case _:
            return ModelError("backend_bad_response", f"{name} responded with {status}{detail}")


def not_a_stream(content_type: str, body: bytes, server: ServerLabel) -> ModelError:
    """The error for a successful response that is not an event stream."""
    if (error := _error_in(body)) is not None:
        return _of_error(error, server)
    return ModelError(
        "backend_bad_response",
        f"{server.name} responded with {server.quote(content_type) or 'no content type'} instead "
        f"of an event stream: {server.quote(body)}",
        fix=_check_url(server),
    )


_NO_SUCH_PATH: Final = ("", "not found", "page not found", "404 page not found")


def _check_url(server: ServerLabel) -> str:
    return f"check {server.url_at}: it usually ends in /v1"


def _bad_request(codes: Set[str], text: str, message: str) -> ModelError:
    lower = text.lower()
    if not codes.isdisjoint(_CONTEXT) or _CONTEXT_TEXT.search(text):
        return ModelError("context_too_long", f"the prompt is too long for the model: {text}")
    if not codes.isdisjoint(_FILTER):
        return ModelError("content_filtered", f"the model's server filtered the prompt: {text}")
    if "model_not_found" in codes:
        return ModelError("model_not_found", message)
    if any(part in lower for part in _TOO_LONG_TO_EMBED):
        return ModelError("embed_text_too_long", f"a text is too long to embed: {text}")
    return ModelRefused("invalid_payload", message)


def _of_error(error: ErrorBody, server: ServerLabel) -> ModelError:
    """The error for an `error` member inside a stream."""
    text = server.quote(_message(error))
    codes = _codes(error)
    message = f"the model's server reported an error: {text or ', '.join(sorted(codes))}"
    if not codes.isdisjoint(_QUOTA):
        return ModelError("backend_quota", message)
    if codes & _RATE_LIMITED:
        return ModelError("backend_rate_limited", message, RetryLimit.TWICE)
    if any(code.isdigit() and 500 <= int(code) < 600 for code in codes) or codes & _UNAVAILABLE:
        return ModelError("backend_unavailable", message, RetryLimit.TWICE)
    result = _bad_request(codes, text, message)
    if result.code == "invalid_payload":
        return ModelError("backend_bad_response", message)
    return result


def _error_in(body: bytes) -> ErrorBody | None:
    """The error in a body, in any of the forms that servers use."""
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        if body.lstrip().startswith(b"["):  # Gemini sends a list of one error
            listed = msgspec.json.decode(body, type=list[ErrorReply])
            read = listed[0] if listed else ErrorReply()
        else:
            read = _read_refusal(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if read.error is not None:
        return _error(read.error)
    if read.message is not None:
        return ErrorBody(read.message, read.type, read.code)
    return ErrorBody(read.detail) if read.detail is not None else None


def _error(value: object) -> ErrorBody:
    """The `error` member, which is an object or a text."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        known = {name: members.get(name) for name in ErrorBody.__struct_fields__}
        return ErrorBody(**known)
    return ErrorBody(value)


def _message(error: ErrorBody) -> str:
    """The text of the error; an object is quoted as JSON."""
    value = error.message if error.message is not None else error.detail
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()


def _codes(error: ErrorBody) -> frozenset[str]:
    """The machine-readable names of the error."""
    names = (error.code, error.type, error.status)
    return frozenset(str(each).lower() for each in names if isinstance(each, str | int) and each)


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
