"""Jobs over HTTP: submit, batch, get (J-10 … J-14, J-16).

The endpoints that are called most. Each checks the request, does one operation on the queue, and
answers. A job of another tenant is answered as not found.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, assert_never

import msgspec

from jobwire.api import jobs as api
from jobwire.api.problems import UNAVAILABLE
from jobwire.gateway import prefer, tenants
from jobwire.gateway.problems import Headers, Problem, retry_after
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import Route, serve
from jobwire.gateway.submissions import FULL_RETRY_S, SubmissionLimits
from jobwire.job.errors import BackendUnavailable, RefusedError
from jobwire.job.ids import new_shard_id, shard_of
from jobwire.job.messages import (
    Already,
    Full,
    JobId,
    JobRequest,
    Mismatch,
    SubmitAnswer,
    Submitted,
)
from jobwire.systems.jobs.any_shards import AnyFollower, AnyQueue
from jobwire.systems.jobs.codec import Record
from jobwire.systems.jobs.contract import DEFAULT_QUEUE, Status
from jobwire.systems.jobs.durability import Durability
from jobwire.systems.jobs.http import answers, request_parser
from jobwire.systems.jobs.http.payload_check import PayloadCheck
from jobwire.systems.jobs.payload import check_payload
from jobwire.systems.jobs.registry import WorkerRegistry
from jobwire.systems.jobs.replies import backend_unavailable
from jobwire.systems.jobs.settings import MEMORY
from jobwire.text import did_you_mean
from jobwire.valkey import ValkeyError

_encode = msgspec.json.Encoder().encode

_ENDED: Final = (Status.DONE, Status.ERROR, Status.CANCELED)
_LISTED: Final = "; GET /v1/tasks lists the known tasks"
_MAX_COMPARED: Final = 200
"""Characters of an unknown task, and known tasks, that are compared for a suggestion."""
_FULL: Final = {
    "queue": "{} jobs are waiting, which is the limit",
    "tenant_open": "your tenant has {} open jobs, which is the limit",
    "tenant_retained": "your tenant has {} stored jobs, which is the limit; "
    "a job is removed when its time to live is over",
    "tenant_bytes": "the jobs of your tenant have {} bytes, which is near the limit; "
    "a job is removed when its time to live is over",
}
_REPLAYED: Final[Headers] = ((b"idempotency-replayed", b"true"),)
_ELSEWHERE: Final = (
    "the idempotency key has a job that cannot be read: its shard was removed, or a foreign "
    "gateway chose its id; the key is free again when its time to live is over"
)


class JobRoutes:
    """The endpoints, over one queue."""

    def __init__(
        self,
        queue: AnyQueue,
        follower: AnyFollower,
        registry: WorkerRegistry,
        limits: SubmissionLimits,
        durability: Durability,
        payloads: PayloadCheck | None = None,
    ) -> None:
        """`payloads` checks them against the workers' schemas; without it they are not."""
        self._payloads = payloads
        self._rate = limits.rate
        self._limits = limits
        self._durability = durability
        self.admit = limits.admit
        self._queue = queue
        self._follower = follower
        self._registry = registry

    def routes(self) -> Sequence[Route]:
        return [
            serve(api.SUBMIT, self.submit),
            serve(api.BATCH, self.batch),
            serve(api.GET, self.get),
            serve(api.STEP, self.step),
        ]

    # Submitting

    async def submit(self, request: HttpRequest, body: api.SubmitRequest) -> Reply:
        job_request = request_parser.job_request(request, body)
        # The common case, kept short: each check awaits only if it has to ask the server.
        self._rate.spend(request.principal.key)
        if self._limits.must_check_memory:
            await self._limits.check_memory()
        if not self._registry.has(job_request.task):
            await self.check_task(job_request.task)
        if not self._is_accepted(job_request):
            await self._check_payload(job_request)
        if job_request.queue or self._registry.queue_of(job_request.task) != DEFAULT_QUEUE:
            job_request = await self._routed(job_request)
        if self._durability.is_due():
            await self._check_durability()
        answer = await self._queue.submit_checked(job_request)
        if (
            isinstance(answer, Submitted)
            and b"prefer" not in request.headers
            and not self._durability.is_due(answer.job_id)
        ):
            headers = ((b"location", f"{request.mount}{api.JOBS}/{answer.job_id}".encode()),)
            return Reply(_encode(_visible(request, self._new(job_request, answer))), 202, headers)
        return await self._answered(request, job_request, answer)

    async def submit_one(self, request: HttpRequest, job_request: JobRequest) -> SubmitAnswer:
        """Submit a job that another route has made of its request; raises Problem."""
        await self.admit(request, 1)
        await self.check_task(job_request.task)
        answer = await self._submit_unchecked(job_request)
        if isinstance(answer, Mismatch | Full):
            raise _refusal(answer)
        await self._check_durability(answer.job_id)
        return answer

    async def _check_durability(self, job_id: str = "") -> None:
        """G-22: raise the problem of a server that does not meet the level. With a job, after its
        submission: it exists, and a failover may lose it."""
        if self._durability.is_due(job_id) and (problem := await self._not_durable(job_id)):
            raise problem

    async def _not_durable(self, job_id: str = "") -> Problem | None:
        try:
            fault = await self._durability.fault(job_id)
        except ValkeyError as error:
            if not job_id:
                raise backend_unavailable(error) from error
            fault = "the server does not answer any more"
        if not fault:
            return None
        text = f"jobs.durability is {self._durability.level}: {fault}"
        more = {"job_id": job_id} if job_id else None
        return Problem(api.NOT_DURABLE, text, headers=retry_after(FULL_RETRY_S), more=more)

    def _is_accepted(self, job_request: JobRequest) -> bool:
        return self._payloads is None or self._payloads.is_accepted(
            job_request.task, job_request.payload_json
        )

    def _payload_problem(self, job_request: JobRequest) -> Problem | None:
        """J-54: the problem of a payload that no worker of its task accepts, or None."""
        if self._payloads is None:
            return None
        fault = self._payloads.fault(job_request.task, job_request.payload_json)
        return Problem(api.INVALID_PAYLOAD, fault) if fault else None

    async def _check_payload(self, job_request: JobRequest) -> None:
        """Raise the problem of a payload that was not accepted, unless a new worker accepts it."""
        await self._registry.refresh()
        if (problem := self._payload_problem(job_request)) is not None:
            raise problem

    async def _check_payloads(self, items: list[JobRequest | Problem], suspects: list[int]) -> None:
        """Replace each of the suspects whose payload is refused by its problem."""
        if suspects:
            await self._registry.refresh()
        for at in suspects:
            job_request = items[at]
            if isinstance(job_request, JobRequest):
                items[at] = self._payload_problem(job_request) or job_request
                await asyncio.sleep(0)  # large payloads cost milliseconds each

    async def _routed(self, job_request: JobRequest) -> JobRequest:
        """J-53: the request with the queue of its task, or with the one that it names; raises
        Problem. The task is known."""
        task, queue = job_request.task, job_request.queue
        if not queue:
            found = self._registry.queue_of(task)
            return job_request if found == DEFAULT_QUEUE else job_request._replace(queue=found)
        if self._registry.is_in_default(task) and queue != DEFAULT_QUEUE:
            detail = f"jobs of the task {task!r} are always in the queue {DEFAULT_QUEUE!r}"
            raise Problem(api.UNKNOWN_QUEUE, detail)
        if not await self._registry.has_queue(queue):
            detail = f"no worker reads or has read a queue {queue!r}; GET /v1/jobs/queues lists all"
            raise Problem(api.UNKNOWN_QUEUE, detail)
        return job_request

    async def _submit_unchecked(self, job_request: JobRequest) -> SubmitAnswer:
        """Submit a job of a known task whose payload was not checked yet; raises Problem."""
        try:
            check_payload(job_request.payload_json)
        except RefusedError as refused:
            raise Problem(api.INVALID_PAYLOAD, refused.message) from None
        if not self._is_accepted(job_request):
            await self._check_payload(job_request)
        job_request = await self._routed(job_request)
        await self._check_durability()
        return await self._queue.submit_checked(job_request)

    async def submit_request(self, request: HttpRequest, job_request: JobRequest) -> Reply:
        """Submit with a check of the payload, which another program may have written."""
        answer = await self._submit_unchecked(job_request)
        return await self._answered(request, job_request, answer)

    async def submit_with_record(
        self, request: HttpRequest, job_request: JobRequest, job_id: JobId
    ) -> Reply:
        """The same with a copy of what another job has recorded (D-13). The copy comes first: a
        worker may take the new job at once."""
        # In the shard of the old one, which has the record.
        new_id = new_shard_id(shard_of(job_id))
        ttl_s = job_request.ttl_s or self._queue.settings.job_ttl_s
        records = await self._queue.copy_record(job_id, new_id, ttl_s)
        job_request = job_request._replace(job_id=new_id, records=records)
        try:
            answer = await self._submit_unchecked(job_request)
        except Problem:
            await self._queue.forget_record(new_id)
            raise
        if not isinstance(answer, Submitted):
            await self._queue.forget_record(new_id)
        return await self._answered(request, job_request, answer)

    async def retry_queue(self, record: Record) -> str:
        """J-53: a job that is retried stays in its queue; without that queue, it is routed anew."""
        if self._registry.is_in_default(record.task):
            return ""
        return record.queue if await self._registry.has_queue(record.queue) else ""

    async def _answered(
        self,
        request: HttpRequest,
        job_request: JobRequest,
        answer: SubmitAnswer,
        *,
        is_repeated: bool = False,
    ) -> Reply:
        if isinstance(answer, Submitted | Already):
            await self._check_durability(answer.job_id)
        match answer:
            case Submitted():
                made = self._new(job_request, answer)
                return await self._reply(request, answer.job_id, made, 202)
            case Already():
                record = await self._queue.record(answer.job_id)
                if record is None:
                    record = await self._queue.stub(answer.job_id)
                if record is None:
                    if is_repeated:
                        raise Problem(UNAVAILABLE, _ELSEWHERE)
                    # The job expired meanwhile, and the key with it.
                    answer = await self._submit_unchecked(job_request)
                    return await self._answered(request, job_request, answer, is_repeated=True)
                return await self._reply(
                    request, answer.job_id, answers.job(record), 200, _REPLAYED
                )
            case Mismatch() | Full():
                raise _refusal(answer)
            case _:
                assert_never(answer)

    async def _reply(
        self,
        request: HttpRequest,
        job_id: JobId,
        job: api.Job,
        status: int,
        headers: Headers = (),
    ) -> Reply:
        """The job; with `Prefer: wait`, once it has ended."""
        headers = ((b"location", f"{request.mount}{api.JOBS}/{job_id}".encode()), *headers)
        wait_s = prefer.wait_s(request)
        if wait_s:
            headers = (*headers, (b"preference-applied", b"wait=%d" % wait_s))
            record = await self._awaited(request, job_id, wait_s)
            if record is not None:
                job = answers.job(record)
                status = 200 if record.status in _ENDED else status
        job = answers.with_durability(job, self._durability.level)
        return Reply(_encode(_visible(request, job)), status, headers)

    async def _awaited(self, request: HttpRequest, job_id: JobId, wait_s: int) -> Record | None:
        """The job once it has ended or the time is up; None if it cannot be read."""
        await request.while_present(self._follower.until_ended(job_id, wait_s))
        try:
            return await self._queue.record(job_id)
        except BackendUnavailable:
            return None  # the job was submitted: the response must not be an error

    def _new(self, job_request: JobRequest, made: Submitted) -> api.Job:
        ttl_s = job_request.ttl_s or self._queue.settings.job_ttl_s
        job = answers.new_job(job_request, made, ttl_s)
        level = self._durability.level
        return job if level == MEMORY else answers.with_durability(job, level)

    async def check_task(self, task: str) -> None:
        if await self._registry.unknown_among([task]):
            raise self._unknown(task)

    def _unknown(self, task: str) -> Problem:
        known = self._registry.known_names[:_MAX_COMPARED]
        hint = did_you_mean(task[:_MAX_COMPARED], known) or _LISTED
        return Problem(api.UNKNOWN_TASK, f"no worker has or had the task {task!r}{hint}")

    async def batch(self, request: HttpRequest) -> Reply:
        """All valid items are submitted in one write; each item has its own result."""
        items = await request_parser.batch(request, await request.body())
        await self.admit(request, len(items))
        tasks = {job_request.task for job_request in items if isinstance(job_request, JobRequest)}
        unknown = await self._registry.unknown_among(tasks)
        suspects: list[int] = []
        for at, job_request in enumerate(items):
            if isinstance(job_request, JobRequest) and job_request.task not in unknown:
                try:
                    items[at] = await self._routed(job_request)
                except Problem as problem:
                    items[at] = problem
                else:
                    if not self._is_accepted(job_request):
                        suspects.append(at)
        await self._check_payloads(items, suspects)
        await self._check_durability()
        good = [
            job_request
            for job_request in items
            if isinstance(job_request, JobRequest) and job_request.task not in unknown
        ]
        answers = iter(self._queue.submit_many_checked(good))
        results: list[api.BatchResult] = []
        for job_request in items:
            if isinstance(job_request, Problem):
                results.append(_refused(job_request, request))
            elif job_request.task in unknown:
                results.append(_refused(self._unknown(job_request.task), request))
            else:
                results.append(await self._result(next(answers), request))
        return Reply(_encode(api.BatchAnswer(results)))

    async def _result(
        self, pending: Awaitable[SubmitAnswer], request: HttpRequest
    ) -> api.BatchResult:
        """The result of one item of a batch."""
        try:
            answer = await pending
        except BackendUnavailable as error:
            return _refused(Problem(UNAVAILABLE, error.message), request)
        if not isinstance(answer, Submitted | Already):
            return _refused(_refusal(answer), request)
        job_id, level = answer.job_id, self._durability.level
        if self._durability.is_due(job_id) and (problem := await self._not_durable(job_id)):
            return _refused(problem, request)
        if isinstance(answer, Submitted):
            return api.BatchResult(202, job_id, durability=level)
        return api.BatchResult(200, job_id, replayed=True, durability=level)

    # Reading

    async def get(self, request: HttpRequest, id_: str) -> Reply:
        job_id = request_parser.job_id(id_)
        record = await self.own(request, job_id)
        headers: Headers = ()
        wait_s = prefer.wait_s(request) if b"prefer" in request.headers else 0
        if wait_s and record.status not in _ENDED:
            headers = ((b"preference-applied", b"wait=%d" % wait_s),)
            await request.while_present(self._follower.until_ended(job_id, wait_s))
            record = await self.own(request, job_id)
        if record.status is Status.QUEUED and not record.entry_id:
            record = record._replace(due_ms=await self._queue.due_ms(job_id))
        job = answers.job(record)
        if record.steps:
            job = answers.with_record(job, await self._queue.summary(job_id))
        return Reply(_encode(_visible(request, job)), headers=headers)

    async def step(self, request: HttpRequest, id_: str, name: str) -> api.StepAnswer:
        job_id = request_parser.job_id(id_)
        await self.own(request, job_id)
        found = await self._queue.step(job_id, name)
        if found is None:
            raise Problem(api.STEP_NOT_FOUND)
        return api.StepAnswer(
            name=name,
            ended_ts=found.ended_ms,
            ms=found.ms,
            bytes=len(bytes(found.result)),
            result=found.result,
        )

    async def own(self, request: HttpRequest, job_id: JobId) -> Record:
        """The job of this id, if the caller may see it."""
        record = await self._queue.record(job_id)
        if record is None or not request_parser.may_see(request, record.tenant):
            raise Problem(api.JOB_NOT_FOUND)
        return record


def _visible(request: HttpRequest, job: api.Job) -> api.Job:
    """The job, without what the caller may not read."""
    if not tenants.sees_content(request):
        return answers.without_content(job)
    return job if tenants.sees_exceptions(request) else answers.without_exception(job)


def _refusal(answer: Mismatch | Full) -> Problem:
    if isinstance(answer, Mismatch):
        return Problem(api.IDEMPOTENCY_MISMATCH)
    detail = _FULL[answer.bound].format(answer.waiting)
    return Problem(api.QUEUE_FULL, detail, headers=retry_after(FULL_RETRY_S))


def _refused(problem: Problem, request: HttpRequest) -> api.BatchResult:
    document = msgspec.Raw(problem.body(request.request_id.decode()))
    return api.BatchResult(problem.kind.status, problem=document)
