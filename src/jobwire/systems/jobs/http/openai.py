"""OpenAI-compatible routes in front of the tasks `chat` and `embed`.

A request is a job: it is queued, leased and retried as any other. The response has the job's id in
`x-job-id`. A client that disconnects cancels its job. Errors have OpenAI's own form.

    request → payload → submit → follow the job's events → chunks, or one answer
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from jobwire.api import openai as api
from jobwire.api.jobs import INVALID_PAYLOAD
from jobwire.api.problems import FORBIDDEN
from jobwire.gateway import tenants
from jobwire.gateway.problems import Headers, Problem
from jobwire.gateway.request import ClientGone, HttpRequest, Reply
from jobwire.gateway.route import Route, read_body, reply, serve
from jobwire.gateway.sse import EventStream, SseEvent
from jobwire.gateway.sse_connections import SseConnections
from jobwire.job.errors import JobwireError
from jobwire.job.messages import JobId, JobRequest, Submitted
from jobwire.systems.jobs.contract import Status
from jobwire.systems.jobs.events import StreamEvent
from jobwire.systems.jobs.follow import Follower
from jobwire.systems.jobs.http import openai_translation, request_parser
from jobwire.systems.jobs.http.jobs import JobRoutes
from jobwire.systems.jobs.queue import StreamsQueue

_MAX_WAIT_S: Final = 3600
_DONE: Final = SseEvent(None, b"[DONE]")
_STATUS: Final[Mapping[str, tuple[int, str]]] = {
    "invalid_payload": (400, "invalid_request_error"),
    "context_too_long": (400, "invalid_request_error"),
    "embed_too_many": (400, "invalid_request_error"),
    "embed_text_too_long": (400, "invalid_request_error"),
    "content_filtered": (400, "invalid_request_error"),
    "model_not_found": (404, "invalid_request_error"),
    "backend_rate_limited": (429, "rate_limit_error"),
    "backend_quota": (429, "insufficient_quota"),
    "backend_timeout": (504, "timeout"),
    "timeout": (504, "timeout"),
}
"""The status and type of a job's error; any other is 502 `server_error`."""

_encode = msgspec.json.Encoder().encode
_decode_members: Final = msgspec.json.Decoder(dict[str, Any]).decode


class OpenAiRoutes:
    """The endpoints."""

    def __init__(
        self, jobs: JobRoutes, queue: StreamsQueue, follower: Follower, streams: SseConnections
    ) -> None:
        self._jobs = jobs
        self._queue = queue
        self._follower = follower
        self._streams = streams
        self._running: set[asyncio.Future[object]] = set()

    def routes(self) -> Sequence[Route]:
        return [
            serve(api.CHAT_COMPLETIONS, self.chat, refuse=_problem),
            serve(api.EMBEDDINGS, self.embeddings, refuse=_problem),
            serve(api.MODELS, self.models),
        ]

    async def chat(self, request: HttpRequest, body: api.ChatCompletionRequest) -> Reply | None:
        """Answer a conversation, as one body or as a stream."""
        members = read_body(_decode_members, request.content, INVALID_PAYLOAD)
        job_id = await self._submit(request, "chat", openai_translation.chat_payload(members))
        if body.stream:
            has_usage = bool(body.stream_options and body.stream_options.include_usage)
            await self._stream(request, job_id, body.model, has_usage=has_usage)
            return None
        result, refused = await self._result(request, job_id)
        return refused or _answer(job_id, openai_translation.completion(job_id, result))

    async def embeddings(self, request: HttpRequest, body: api.EmbeddingsRequest) -> Reply:
        """Compute vectors."""
        job_id = await self._submit(request, "embed", openai_translation.embed_payload(body))
        result, refused = await self._result(request, job_id)
        return refused or _answer(job_id, openai_translation.embeddings(result))

    async def models(self, _request: HttpRequest) -> api.ModelList:
        """The names that `model` may have: workers may know more, and a job may name them."""
        return api.ModelList([api.ModelItem(api.OWN_MODEL)])

    async def _submit(self, request: HttpRequest, task: str, payload: dict[str, Any]) -> JobId:
        if not tenants.sees_content(request):
            raise Problem(FORBIDDEN, "these routes need a key with the scopes submit and read")
        job_request = JobRequest(
            task,
            _encode(payload).decode(),
            tenant=request_parser.tenant(request),
            traceparent=request_parser.traceparent(request),
        )
        answer = await self._jobs.submit_one(request, job_request)
        assert isinstance(answer, Submitted), "a request without an Idempotency-Key is a new job"
        return answer.job_id

    # One answer

    async def _result(
        self, request: HttpRequest, job_id: JobId
    ) -> tuple[Mapping[str, Any], Reply | None]:
        """The result of the job, or an error; a client that leaves cancels the job."""
        ended = asyncio.ensure_future(self._follower.until_ended(job_id, _MAX_WAIT_S))
        left = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait([ended, left], return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_over = ended.done()
            for task in (ended, left):
                task.cancel()
            if not is_over:
                self._cancel(job_id)
        if not is_over:
            raise ClientGone
        record = await self._queue.record(job_id)
        if record is not None and record.status is Status.DONE:
            return msgspec.json.decode(record.result_json), None
        text = record.error_json if record is not None else ""
        error: Mapping[str, Any] = msgspec.json.decode(text or "{}")
        status = record.status.value if record is not None else "expired"
        return {}, _failure(job_id, error or {"code": status, "message": f"the job is {status}"})

    # A stream

    async def _stream(
        self, request: HttpRequest, job_id: JobId, model: str, *, has_usage: bool
    ) -> None:
        def attach(stream: EventStream) -> Callable[[], None]:
            reader = _ChunkReader(stream, job_id, model, has_usage=has_usage)
            reader.on_done = lambda: self._start(self._finish(reader, job_id))
            detach = self._follower.watch(job_id, reader)

            def stop() -> None:
                detach()
                if not reader.is_over:
                    self._cancel(job_id)

            return stop

        await self._streams.serve(request, attach, headers=_job_header(job_id))

    async def _finish(self, reader: "_ChunkReader", job_id: JobId) -> None:
        """Write the last chunk, which needs the result; the event `done` does not contain it."""
        result: Mapping[str, Any] = {}
        with contextlib.suppress(JobwireError):
            record = await self._queue.record(job_id)
            result = msgspec.json.decode(record.result_json or "{}") if record else {}
        reader.finish(result)

    def _cancel(self, job_id: JobId) -> None:
        """Cancel the job of a client that has left."""
        self._start(self._queue.cancel(job_id))

    def _start(self, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Future[object]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # a job that cannot be canceled ends by itself


class _ChunkReader:
    """Writes a job's events to one stream as OpenAI's chunks."""

    def __init__(self, stream: EventStream, job_id: JobId, model: str, *, has_usage: bool) -> None:
        self._stream = stream
        self._id = openai_translation.completion_id(job_id)
        self._model = model
        self._created = int(time.time())
        self._has_usage = has_usage
        self._has_text = False
        self._is_finishing = False
        self.on_done: Callable[[], None] = self._stream.end
        self.is_over = False
        """Whether the job has ended, or needs no cancellation."""

    @property
    def closed(self) -> bool:
        return self._stream.closed or self._stream.ending

    def push(self, event: StreamEvent) -> bool:
        frame = self._frame(event)
        if frame and not self._stream.push(SseEvent(None, frame)):
            return False
        self._has_text |= event.kind == "token"
        self.is_over |= event.is_terminal
        if event.kind == "done":
            self._is_finishing = True
            self.on_done()
        elif event.is_terminal or (event.kind == "reset" and self._has_text):
            self._stream.end()
        return True

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the last chunk."""
        self._stream.push(SseEvent(None, self._last(result)))
        self._stream.push(_DONE)
        self._stream.end()

    def send_gap(self) -> bool:
        return self._stream.push(SseEvent(None, _error_body("server_error", "events are missing")))

    def end(self) -> None:
        self.is_over = True
        if not self._is_finishing:
            self._stream.end()

    async def wait_writable(self) -> None:
        await self._stream.wait_writable()

    def _frame(self, event: StreamEvent) -> bytes:
        match event.kind:
            case "token":
                role = None if self._has_text else "assistant"
                return self._chunk(api.ChatMessage(role, _data(event).get("text", "")))
            case "reasoning":
                text = _data(event).get("text", "")
                return self._chunk(api.ChatMessage(reasoning_content=text))
            case "reset" if self._has_text:
                # A chunk cannot be taken back.
                return _error_body("server_error", "the model's server failed in mid-answer; retry")
            case "error":
                error = _data(event)
                return _encode(_error_of(error.get("error") or error)[1])
            case "canceled":
                return _error_body("canceled", "the job was canceled")
            case _:
                return b""

    def _last(self, result: Mapping[str, Any]) -> bytes:
        self._model = str(result.get("model") or self._model)
        message = api.ChatMessage(tool_calls=_indexed(result.get("tool_calls") or []))
        usage = openai_translation.usage_of(result) if self._has_usage else None
        return self._chunk(message, str(result.get("finish_reason") or "stop"), usage)

    def _chunk(
        self,
        delta: api.ChatMessage,
        finish_reason: str | None = None,
        usage: api.TokenUsage | None = None,
    ) -> bytes:
        choice = api.ChunkChoice(delta, finish_reason)
        chunk = api.ChatCompletionChunk(self._id, [choice], self._model, self._created, usage)
        return _encode(chunk)


def _indexed(calls: list[Any]) -> list[Any]:
    """Calls in a stream have an index."""
    return [{"index": at, **call} for at, call in enumerate(calls)]


def _data(event: StreamEvent) -> dict[str, Any]:
    read: object = msgspec.json.decode(event.data)
    return cast("dict[str, Any]", read) if isinstance(read, dict) else {}


async def _disconnected(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _job_header(job_id: JobId) -> Headers:
    return ((b"x-job-id", job_id.encode()),)


def _answer(job_id: JobId, body: object) -> Reply:
    return reply(body, headers=_job_header(job_id))


def _problem(problem: Problem) -> Reply:
    """A refusal of the gateway in OpenAI's form."""
    status = problem.kind.status
    kind = "invalid_request_error" if status < 500 and status != 429 else "server_error"
    kind = "rate_limit_error" if status == 429 else kind
    detail = api.ErrorDetail(problem.detail, kind, problem.kind.code)
    return reply(api.ErrorAnswer(detail), status, problem.headers)


def _failure(job_id: JobId, error: Mapping[str, Any]) -> Reply:
    status, answer = _error_of(error)
    return reply(answer, status, _job_header(job_id))


def _error_of(error: Mapping[str, Any]) -> tuple[int, api.ErrorAnswer]:
    code = str(error.get("code", "server_error"))
    status, kind = _STATUS.get(code, (502, "server_error"))
    detail = api.ErrorDetail(str(error.get("message", code)), kind, code)
    return status, api.ErrorAnswer(detail)


def _error_body(code: str, message: str) -> bytes:
    return _encode(api.ErrorAnswer(api.ErrorDetail(message, "server_error", code)))
