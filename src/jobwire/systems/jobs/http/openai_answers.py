"""Results, problems and errors of jobs in OpenAI's form (K-5). Pure."""

import base64
import re
import sys
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from jobwire.api import openai as api
from jobwire.api.jobs import UNKNOWN_TASK
from jobwire.gateway.problems import Headers, Problem, retry_after
from jobwire.gateway.request import Reply
from jobwire.gateway.route import reply

_BAD_REQUEST: Final = (400, "invalid_request_error")
_STATUS: Final[Mapping[str, tuple[int, str]]] = {
    "invalid_payload": _BAD_REQUEST,
    "context_too_long": _BAD_REQUEST,
    "embed_too_many": _BAD_REQUEST,
    "embed_text_too_long": _BAD_REQUEST,
    "content_filtered": _BAD_REQUEST,
    "model_not_found": (404, "invalid_request_error"),
    "backend_rate_limited": (429, "rate_limit_error"),
    "backend_quota": (429, "insufficient_quota"),
    "backend_timeout": (504, "timeout"),
    "timeout": (504, "timeout"),
}
"""The status and type of a job's error; any other is 502 `server_error`."""
_AFTER: Final = re.compile(r"; retry after (\d{1,9}(?:\.\d+)?) s\b")
"""In the message of an error: what the model's server asked for."""
_RETRY_S: Final = 5.0
_PLACE: Final = re.compile(r"(?:body /|payload\.)(?P<place>[^\s:]+): ")
"""At the start of a message: the member of the request that is wrong."""

Result = Mapping[str, Any]


def completion_id(job_id: str) -> str:
    """The id of an answer."""
    return f"chatcmpl-{job_id}"


def completion(job_id: str, result: Result) -> api.ChatCompletion:
    """A complete answer from the result of a job."""
    calls = cast("list[Any]", result.get("tool_calls") or [])
    text = str(result.get("text", ""))
    message = api.CompletionMessage(text if text or not calls else None)
    if calls:
        message.tool_calls = calls
    if reasoning := result.get("reasoning"):
        message.reasoning_content = str(reasoning)
    choice = api.CompletionChoice(message, finish_reason(result))
    model, created = str(result.get("model", "")), int(time.time())
    return api.ChatCompletion(completion_id(job_id), [choice], model, created, usage(result))


def finish_reason(result: Result) -> str:
    return str(result.get("finish_reason") or "stop")


def usage(result: Result) -> api.TokenUsage:
    """The token counts of a result; zero if the model's server does not count."""
    counts = result.get("usage") or {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    return msgspec.convert(counts, api.TokenUsage)


class ChunkWriter:
    """The chunks of one streamed answer."""

    def __init__(self, job_id: str, model: str) -> None:
        self._id = completion_id(job_id)
        self._model = model
        self._created = int(time.time())

    def first(self) -> api.ChatCompletionChunk:
        """The chunk with the role, before all others."""
        return self.chunk(api.ChunkDelta("assistant", ""))

    def chunk(self, delta: api.ChunkDelta) -> api.ChatCompletionChunk:
        """The chunk of a piece of the answer."""
        choice = api.ChunkChoice(delta)
        return api.ChatCompletionChunk(self._id, [choice], self._model, self._created)

    def last(self, result: Result, *, has_usage: bool) -> Iterator[api.ChatCompletionChunk]:
        """The chunks at the end of an answer whose text was sent."""
        self._model = str(result.get("model") or self._model)
        if calls := cast("list[Any]", result.get("tool_calls") or []):
            indexed = [{"index": at, **call} for at, call in enumerate(calls)]
            yield self.chunk(api.ChunkDelta(tool_calls=indexed))
        end = self.chunk(api.ChunkDelta())
        end.choices[0].finish_reason = finish_reason(result)
        yield end
        if has_usage:
            counts = self.chunk(api.ChunkDelta())
            counts.choices, counts.usage = [], usage(result)
            yield counts


def embeddings(results: Sequence[Result], encoding: str | None) -> api.EmbeddingList:
    """Vectors from the results of jobs, in their order."""
    vectors = [str(each) for result in results for each in result["vectors"]]
    items = [
        api.EmbeddingItem(each if encoding == "base64" else _floats(each), at)
        for at, each in enumerate(vectors)
    ]
    counts = [usage(result) for result in results]
    prompt = sum(each.prompt_tokens for each in counts)
    total = sum(each.total_tokens for each in counts)
    return api.EmbeddingList(items, str(results[0]["model"]), api.TokenUsage(prompt, total))


def _floats(vector: str) -> list[float]:
    """The numbers of little-endian 32-bit floats in base64, each as short as it is exact."""
    numbers = array("f", base64.b64decode(vector))
    if sys.byteorder == "big":
        numbers.byteswap()
    return [float(f"{number:.9g}") for number in numbers]


# ── errors ───────────────────────────────────────────────────────────────────────────────────────


def problem(problem: Problem) -> Reply:
    """A problem of the gateway."""
    status, code = problem.kind.status, problem.kind.code
    if problem.kind == UNKNOWN_TASK:  # no worker had the task yet
        status, code = api.NO_WORKER.status, api.NO_WORKER.code
    if status == 422:
        status = 400
    headers = problem.headers
    if status in (429, 503) and not any(name == b"retry-after" for name, _ in headers):
        headers = (*headers, *retry_after(_RETRY_S))
    kind = "server_error" if status >= 500 else "invalid_request_error"
    kind = "rate_limit_error" if status == 429 else kind
    detail = _detail(problem.detail, kind, code)
    if param := problem.more.get("param"):
        detail.param = str(param)
    return reply(api.ErrorAnswer(detail), status, headers)


def failure(error: Result, headers: Headers) -> Reply:
    """The error of a job."""
    status, answer = error_of(error)
    if status == 429:
        found = _AFTER.search(answer.error.message)
        headers = (*headers, *retry_after(float(found[1]) if found else _RETRY_S))
    return reply(answer, status, headers)


def error_of(error: Result) -> tuple[int, api.ErrorAnswer]:
    """The status and the answer of a job's error."""
    code = str(error.get("code", "server_error"))
    status, kind = _STATUS.get(code, (502, "server_error"))
    return status, api.ErrorAnswer(_detail(str(error.get("message", code)), kind, code))


def _detail(message: str, kind: str, code: str) -> api.ErrorDetail:
    """An error; `param` is the member that the message begins with, as the client knows it."""
    found = _PLACE.match(message)
    if found is None:
        return api.ErrorDetail(message, kind, code)
    param = re.sub(r"/(\d+)(?=/|$)", r"[\1]", found["place"]).replace("/", ".")
    return api.ErrorDetail(f"{param}: {message[found.end() :]}", kind, code, param)


def server_error(code: str, message: str) -> api.ErrorAnswer:
    return api.ErrorAnswer(api.ErrorDetail(message, "server_error", code))
