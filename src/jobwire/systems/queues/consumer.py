"""A worker's end of a BullMQ queue: one method a verb, each a single script.

Requests are sent when a method is called; awaiting brings the answer. The engine has one for each
queue that it serves. It keeps no state of jobs: tokens are the
caller's. What the server may well answer (a lost lock, a missing job) is a value, `Refusal`.
"""

import logging
from collections.abc import Awaitable, Iterable, Sequence
from typing import Final, NamedTuple, cast

from jobwire.systems.queues import settle_args
from jobwire.systems.queues.checks import check_queue_name
from jobwire.systems.queues.clock import NowMs, system_now_ms
from jobwire.systems.queues.codec import (
    JobHash,
    KeepRule,
    TakeAnswer,
    Took,
    clean,
    json_text,
    read_job,
    read_take,
)
from jobwire.systems.queues.contract import CANCELED, Keys, Refusal
from jobwire.systems.queues.scheduler_iterations import Unreadable, next_iteration
from jobwire.systems.queues.scripts import script
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.settle_args import End, FailedAttempt
from jobwire.valkey import Arg, Connection, Reply, ServerError

_log = logging.getLogger("jobwire.bullmq")


class SettledAttempt(NamedTuple):
    """The attempt is over."""


_OK: Final = "ok"
_SETTLED: Final = SettledAttempt()


class BullConsumer:
    def __init__(
        self,
        connection: Connection,
        queue: str,
        settings: BullSettings | None = None,
        *,
        name: str = "",
        worker_id: str = "",
        now_ms: NowMs = system_now_ms,
    ) -> None:
        """`name` is what Node shows as the worker's name; `worker_id` is the extra `workerId`."""
        self.settings = settings or BullSettings()
        self.keys = Keys(check_queue_name(queue), self.settings.prefix)
        self._declared = (self.keys.meta,)
        self._extras = int(self.settings.extras)
        self._connection = connection
        self._name = name
        self._worker_id = worker_id
        self._now_ms = now_ms

    # Taking and holding

    def take(self, token: str) -> Awaitable[TakeAnswer]:
        """Start the next job under `token`; a scheduler's next iteration is made before this
        returns."""
        return self._first_taken(self.take_many([token]))

    def take_many(self, tokens: Sequence[str]) -> Awaitable[list[TakeAnswer]]:
        """Start a job under each token, until there is none; the last answer may be other than
        Took."""
        return self._of_one(take_from([(self, len(tokens), 0, len(tokens))], tokens))

    def send_take(
        self, parts: "Sequence[tuple[BullConsumer, int, int, int]]", tokens: Sequence[str]
    ) -> Awaitable[Reply]:
        """The script of `take_from`, with the settings and the names of this one."""
        settings = self.settings
        args: list[Arg] = [self._now_ms(), self._extras]
        args += (settings.lock_ms, settings.limit_max, settings.limit_ms)
        args += (self._name, self._worker_id)
        for _, part, hold_ms, most in parts:
            args += (hold_ms, part, most)
        keys = [part[0].keys.meta for part in parts]
        return self._connection.run(script("take"), keys, [*args, *tokens])

    async def recover(
        self, token_prefix: str, known: Iterable[str], idle_ms: int = 0
    ) -> list[tuple[str, JobHash]]:
        """Active jobs whose token begins so and is not in `known`, with their tokens."""
        args = (token_prefix, self.settings.lock_ms, idle_ms, *known)
        rows = cast("list[tuple[str, str, list[Reply]]]", await self._run("recover", *args))
        return [(token, read_job(job_id, flat)) for token, job_id, flat in rows]

    async def renew(self, held: Sequence[tuple[str, str]]) -> list[str]:
        """Extend the locks of (job id, token) pairs; the ids of those that are lost."""
        lost, _ = cast("tuple[list[str], list[str]]", await self.send_renewal(held))
        return [job_id for job_id, token in held if token in lost]

    def send_renewal(self, held: Iterable[tuple[str, str]]) -> Awaitable[Reply]:
        """`renew` with the whole answer: the tokens of jobs that are lost, and to be canceled."""
        pairs = (word for pair in held for word in pair)
        return self._run("renew", self.settings.lock_ms, CANCELED, *pairs)

    # Ending an attempt

    def complete(
        self, job: JobHash, token: str, result_json: str = "null", *, keep: KeepRule | None = None
    ) -> Awaitable[SettledAttempt | Refusal]:
        """End the job with its result; `keep` counts where the job has no rule of its own."""
        return self._only(self.settle([settle_args.completed(job, token, result_json, keep)]))

    def fail(
        self, job: JobHash, token: str, failure: FailedAttempt, *, keep: KeepRule | None = None
    ) -> Awaitable[SettledAttempt | Refusal]:
        """End the job as failed for good."""
        return self._only(self.settle([settle_args.failed(job, token, failure, keep)]))

    def settle(
        self, ends: Iterable[End]
    ) -> Awaitable[list[SettledAttempt | Refusal | ServerError]]:
        """End many jobs; where the server refuses to write one of them, its answer is the error."""
        return settle_in([(self, end) for end in ends])

    def send_settle(self, keys: Sequence[Arg], ends: Sequence[Arg]) -> Awaitable[Reply]:
        """The script of `settle_in`, with the settings of this one."""
        args = (self._now_ms(), self._extras, self.settings.metrics_points, *ends)
        return self._connection.run(script("settle"), keys, args)

    def retry(
        self, job: JobHash, token: str, failure: FailedAttempt
    ) -> Awaitable[SettledAttempt | Refusal]:
        """End a failed attempt and requeue the job."""
        return self._left(self._run("retry", *settle_args.retried(job, token, failure)))

    def delay(
        self, job: JobHash, token: str, delay_ms: int, failure: FailedAttempt | None = None
    ) -> Awaitable[SettledAttempt | Refusal]:
        """End an attempt and run the job later. It counts as an attempt where it failed."""
        args = settle_args.delayed(job, token, delay_ms, failure)
        return self._left(self._run("delay", *args))

    def release(self, job_id: str, token: str) -> Awaitable[SettledAttempt | Refusal]:
        """Requeue the job unfinished, as the next one to start."""
        return self._left(self._run("release", job_id, token))

    def wait_for_children(
        self, job_id: str, token: str, child_key: str = ""
    ) -> Awaitable[bool | Refusal]:
        """True where the job now waits; False where no child is pending and it stays active."""
        return self._waits(self._run("wait_for_children", job_id, token, child_key))

    async def _waits(self, reply: Awaitable[Reply]) -> bool | Refusal:
        match await reply:
            case ["ok"]:
                return True
            case ["no_children"]:
                return False
            case other:
                return _refusal(other)

    async def check_stalled(self) -> list[str]:
        """Requeue jobs of workers that stopped renewing; at most one check an interval, shared
        with every other program of the queue."""
        settings = self.settings
        found = await self._run("stalled", settings.stalled_interval_ms, settings.max_stalled)
        return cast("list[str]", found)

    # Reporting

    def report(
        self,
        job_id: str,
        token: str,
        kind: str,
        value_json: str,
        message: str = "",
        *,
        keep_logs: int | None = None,
    ) -> Awaitable[bool]:
        """Write what a running job reports: progress, a line of the log (`message`), data or an
        event; False where the lock is no longer the caller's."""
        text = clean(message, self.settings.max_log_chars)
        keep = self.settings.max_log_lines if keep_logs is None else keep_logs
        return self._written(self._run("report", job_id, token, kind, value_json, text, keep))

    async def _written(self, reply: Awaitable[Reply]) -> bool:
        return await reply == "written"

    # How the scripts are called

    def _run(self, verb: str, *args: Arg) -> Awaitable[Reply]:
        head = (self._now_ms(), self._extras)
        return self._connection.run(script(verb), self._declared, (*head, *args))

    async def _only(
        self, answers: Awaitable[Sequence[SettledAttempt | Refusal | ServerError]]
    ) -> SettledAttempt | Refusal:
        (answer,) = await answers
        if isinstance(answer, ServerError):
            raise answer
        return answer

    async def _left(self, reply: Awaitable[Reply]) -> SettledAttempt | Refusal:
        match await reply:
            case ["ok", *_]:
                return _SETTLED
            case other:
                return _refusal(other)

    async def _first_taken(self, answers: Awaitable[list[TakeAnswer]]) -> TakeAnswer:
        return (await answers)[0]

    async def _of_one(self, answers: Awaitable[list[list[TakeAnswer]]]) -> list[TakeAnswer]:
        (found,) = await answers
        return found

    async def taken(self, reply: Reply) -> TakeAnswer:
        """Read an answer; a scheduler's next iteration is made."""
        answer = read_take(reply)
        if isinstance(answer, Took) and answer.job.scheduler:
            await self._advance(answer.job)
        return answer

    async def _advance(self, job: JobHash) -> None:
        """The consumer that starts an iteration adds the next one. After a crash before this line
        the job stalls, and its next consumer adds it."""
        try:
            iteration = next_iteration(job, self._now_ms())
            if iteration is None:
                return
            opts = json_text(iteration.opts)
            await self._run("advance", job.scheduler, job.id, iteration.due_ms, opts)
        except (Unreadable, ServerError) as error:
            # The job itself is valid and runs.
            _log.warning(
                "scheduler not advanced queue=%(queue)s scheduler=%(scheduler)s job_id=%(job_id)s "
                "error=%(error)s; it has no next run",
                {
                    "queue": self.keys.queue,
                    "scheduler": job.scheduler,
                    "job_id": job.id,
                    "error": error,
                },
            )


def take_from(
    parts: Sequence[tuple[BullConsumer, int, int, int]], tokens: Sequence[str]
) -> Awaitable[list[list[TakeAnswer]]]:
    """Start jobs of many queues in one script, at most one under each token (B-27). Each queue has
    its part of the tokens first; with `hold_ms`, the third number, none of its jobs is started,
    and due ones are promoted; the fourth is the most that are started. Answers for each queue:
    without another than Took it may have more jobs."""
    return _all_taken(parts, parts[0][0].send_take(parts, tokens))


async def _all_taken(
    parts: Sequence[tuple[BullConsumer, int, int, int]], reply: Awaitable[Reply]
) -> list[list[TakeAnswer]]:
    found = zip(parts, cast("list[list[Reply]]", await reply), strict=True)
    return [[await part[0].taken(each) for each in answers] for part, answers in found]


def settle_in(
    ends: Sequence[tuple[BullConsumer, End]],
) -> Awaitable[list[SettledAttempt | Refusal | ServerError]]:
    """End jobs of many queues in one script; those of one queue follow each other. Where the server
    refuses to write one of them, its answer is the error."""
    numbers: dict[Arg, int] = {}
    args: list[Arg] = []
    for consumer, end in ends:
        args.append(numbers.setdefault(consumer.keys.meta, len(numbers) + 1))
        args += end
    return _all_left(ends[0][0].send_settle([*numbers], args))


async def _all_left(reply: Awaitable[Reply]) -> list[SettledAttempt | Refusal | ServerError]:
    words = cast("list[str | ServerError]", await reply)
    return [
        _SETTLED if word == _OK else word if isinstance(word, ServerError) else Refusal(word)
        for word in words
    ]


def _refusal(reply: Reply) -> Refusal:
    match reply:
        case [str(word), *_]:
            return Refusal(word)
        case _:
            raise TypeError(f"a script answered {reply!r}")
