"""OpenAI-compatible routes in front of the tasks `chat` and `embed` (K-2, K-5).

A request is a job: it is queued, leased and retried as any other. The response has the job's id in
`x-job-id`. A client that disconnects cancels its job. Errors have OpenAI's own form. A client here
waits for its answer, so a job that no worker can take is not left in the queue: it is 503.

    request → payload → submit → follow the job's events → chunks, or one answer
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from jobwire.api import openai as api
from jobwire.api.jobs import INVALID_PAYLOAD
from jobwire.api.problems import FORBIDDEN, INVALID
from jobwire.gateway import tenants
from jobwire.gateway.problems import Headers, Problem, retry_after
from jobwire.gateway.request import ClientGone, HttpRequest, Reply
from jobwire.gateway.route import Route, read_body, reply, serve
from jobwire.gateway.sse import EventStream
from jobwire.gateway.sse_connections import SseConnections
from jobwire.job.errors import JobwireError
from jobwire.job.messages import JobId, JobRequest, Submitted
from jobwire.systems.jobs.any_shards import AnyFollower, AnyQueue
from jobwire.systems.jobs.contract import Status
from jobwire.systems.jobs.http import openai_answers, openai_requests, request_parser
from jobwire.systems.jobs.http.jobs import JobRoutes
from jobwire.systems.jobs.http.openai_stream import ChunkReader
from jobwire.systems.jobs.registry import WorkerRegistry

_MAX_WAIT_S: Final = 3600
_WORKER_WAIT_S: Final = 2.0
"""How long a request waits for a worker to be started."""
_CHECK_S: Final = 0.25
_ABANDONED_CHECK_S: Final = 1.0
"""How often a job that waits is checked for workers, which is mostly a look at a cache."""

A = TypeVar("A")
B = TypeVar("B")
_encode = msgspec.json.Encoder().encode
_decode_members: Final = msgspec.json.Decoder(dict[str, Any]).decode


class OpenAiRoutes:
    """The endpoints."""

    def __init__(
        self,
        jobs: JobRoutes,
        queue: AnyQueue,
        registry: WorkerRegistry,
        follower: AnyFollower,
        streams: SseConnections,
    ) -> None:
        self._jobs = jobs
        self._queue = queue
        self._registry = registry
        self._follower = follower
        self._streams = streams
        self._running: set[asyncio.Future[object]] = set()

    def routes(self) -> Sequence[Route]:
        return [
            serve(api.CHAT_COMPLETIONS, self.chat, refuse=openai_answers.problem),
            serve(api.EMBEDDINGS, self.embeddings, refuse=openai_answers.problem),
            serve(api.MODELS, self.models, refuse=openai_answers.problem),
        ]

    async def chat(self, request: HttpRequest, body: api.ChatCompletionRequest) -> Reply | None:
        """Answer a conversation, as one body or as a stream."""
        members = read_body(_decode_members, request.content, INVALID_PAYLOAD)
        payload = _translated(openai_requests.chat_payload, members)
        job_id = await self._submit(request, "chat", payload)
        if body.stream:
            await self._stream(request, job_id, body, payload)
            return None
        try:
            await self._until_ended(request, [job_id], "chat")
        except BaseException:
            self._cancel(job_id)
            raise
        result, refused = await self._outcome(job_id)
        return refused or _answer(job_id, openai_answers.completion(job_id, result))

    async def embeddings(self, request: HttpRequest, body: api.EmbeddingsRequest) -> Reply:
        """Compute vectors."""
        payloads = _translated(openai_requests.embed_payloads, body)
        job_ids: list[JobId] = []
        try:
            for payload in payloads:
                job_id = await self._submit(request, "embed", payload)
                job_ids.append(job_id)
            await self._until_ended(request, job_ids, "embed")
        except BaseException:
            for job_id in job_ids:
                self._cancel(job_id)
            raise
        results: list[Mapping[str, Any]] = []
        for job_id in job_ids:
            result, refused = await self._outcome(job_id)
            if refused is not None:
                return refused
            results.append(result)
        return _answer(job_ids[0], openai_answers.embeddings(results, body.encoding_format))

    async def models(self, _request: HttpRequest) -> api.ModelList:
        """The names that `model` may have: workers may know more, and a job may name them."""
        return api.ModelList([api.ModelItem(api.OWN_MODEL)])

    async def _submit(self, request: HttpRequest, task: str, payload: dict[str, Any]) -> JobId:
        if not tenants.sees_content(request):
            raise Problem(FORBIDDEN, "these routes need a key with the scopes submit and read")
        await self._require_worker(request, task)
        job_request = JobRequest(
            task,
            _encode(payload).decode(),
            tenant=request_parser.tenant(request),
            traceparent=request_parser.traceparent(request),
        )
        answer = await self._jobs.submit_one(request, job_request)
        assert isinstance(answer, Submitted), "a request without an Idempotency-Key is a new job"
        return answer.job_id

    # Workers

    async def _require_worker(self, request: HttpRequest, task: str) -> None:
        """Raise a Problem if no worker has the task, and none is started within a moment."""
        if await self._registry.is_served(task):
            return
        try:
            async with asyncio.timeout(_WORKER_WAIT_S):
                if not await request.while_present(self._served(task)):
                    raise ClientGone
        except TimeoutError:
            raise _no_worker(task) from None

    async def _served(self, task: str) -> bool:
        while not await self._registry.is_served(task):
            await asyncio.sleep(_CHECK_S)
        return True

    async def _abandoned(self, job_id: JobId, task: str) -> None:
        """Return once the job waits and no worker has its task any more."""
        while True:
            await asyncio.sleep(_ABANDONED_CHECK_S)
            try:
                if await self._registry.is_served(task):
                    continue
                record = await self._queue.record(job_id)
            except JobwireError:
                continue  # an outage; the job may still be taken after it
            if record is None or record.status is Status.QUEUED:
                return

    # One answer

    async def _until_ended(self, request: HttpRequest, job_ids: list[JobId], task: str) -> None:
        """Wait for the jobs; raises if the client leaves, or no worker can take a job."""
        ended = asyncio.gather(
            *(self._follower.until_ended(job_id, _MAX_WAIT_S) for job_id in job_ids)
        )
        abandoned = asyncio.ensure_future(self._abandoned(job_ids[-1], task))
        waiting = (ended, abandoned)
        try:
            await request.while_present(asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED))
            if not ended.done():
                raise _no_worker(task) if abandoned.done() else ClientGone
            ended.result()
        finally:
            for each in waiting:
                each.cancel()

    async def _outcome(self, job_id: JobId) -> tuple[Mapping[str, Any], Reply | None]:
        """The result of an ended job, or its error."""
        record = await self._queue.record(job_id)
        if record is not None and record.status is Status.DONE:
            return msgspec.json.decode(record.result_json), None
        text = record.error_json if record is not None else ""
        error: Mapping[str, Any] = msgspec.json.decode(text or "{}")
        status = record.status.value if record is not None else "expired"
        error = error or {"code": status, "message": f"the job is {status}"}
        return {}, openai_answers.failure(error, _job_header(job_id))

    # A stream

    async def _stream(
        self,
        request: HttpRequest,
        job_id: JobId,
        body: api.ChatCompletionRequest,
        payload: Mapping[str, Any],
    ) -> None:
        def attach(stream: EventStream) -> Callable[[], None]:
            reader = ChunkReader(
                stream,
                openai_answers.ChunkWriter(job_id, body.model or api.OWN_MODEL),
                has_usage=bool(body.stream_options and body.stream_options.include_usage),
                # An answer that does not match a schema is replaced by a repaired one.
                holds_text="response_format" in payload,
            )
            reader.on_done = lambda: self._start(self._finish(reader, job_id))
            watch = self._start(self._end_abandoned(reader, job_id))
            detach = self._follower.watch_clean(job_id, reader)

            def stop() -> None:
                detach()
                watch.cancel()
                if not reader.is_over:
                    self._cancel(job_id)

            return stop

        await self._streams.serve(request, attach, headers=_job_header(job_id))

    async def _finish(self, reader: ChunkReader, job_id: JobId) -> None:
        """Write the last chunks, which need the result; the event `done` does not contain it."""
        try:
            record = await self._queue.record(job_id)
        except JobwireError:
            record = None
        if record is None or record.status is not Status.DONE:
            reader.fail("server_error", "the end of the answer cannot be read")
        else:
            await reader.finish(msgspec.json.decode(record.result_json))

    async def _end_abandoned(self, reader: ChunkReader, job_id: JobId) -> None:
        await self._abandoned(job_id, "chat")
        reader.fail(api.NO_WORKER.code, api.NO_WORKER.detail)

    def _cancel(self, job_id: JobId) -> None:
        """Cancel the job of a client that has left, or of which no worker takes care."""
        self._start(self._queue.cancel(job_id))

    def _start(self, work: Awaitable[object]) -> "asyncio.Future[object]":
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Future[object]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # a job that cannot be canceled ends by itself


def _translated(translate: Callable[[A], B], given: A) -> B:
    try:
        return translate(given)
    except openai_requests.UnsupportedRequest as error:
        raise Problem(INVALID, str(error), more={"param": error.param}) from None


def _no_worker(task: str) -> Problem:
    detail = f"no worker is running that has the task {task!r}; start one with `jobwire worker`"
    return Problem(api.NO_WORKER, detail, headers=retry_after(_WORKER_WAIT_S))


def _job_header(job_id: JobId) -> Headers:
    return ((b"x-job-id", job_id.encode()),)


def _answer(job_id: JobId, body: object) -> Reply:
    return reply(body, headers=_job_header(job_id))
