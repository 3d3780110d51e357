"""What a worker can do: an App holds the handlers, one a task.

Written by users (`app = App()`), read by the worker and the CLI. It opens nothing and runs
nothing; importing a module with an App in it costs no more than that.

    @app.handler("chat", timeout_s=60, retries=3)
    async def chat(ctx: Context, payload: Chat) -> Answer: ...
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from jobwire.job import retry
from jobwire.job.cron import parse as parse_cron
from jobwire.job.messages import JobInfo, LeasedJob, MissingRequirement, TaskDefinition
from jobwire.job.retry import Backoff
from jobwire.worker import signature
from jobwire.worker.codec import NotJson, to_json
from jobwire.worker.outcomes import AttemptPolicy, ProcessResult
from jobwire.worker.scheduler import CronEntry
from jobwire.worker.signature import HandlerKind, InvalidPayload, Signature

F = TypeVar("F", bound=Callable[..., Any])
Look = Callable[[], Iterable[MissingRequirement]]
Around = Callable[[JobInfo, Callable[[str], ProcessResult]], ProcessResult]
"""Gets the job, and what runs it; that is given the trace that the process goes on with."""
_log: Final = logging.getLogger("jobwire.worker")


@dataclass(frozen=True, slots=True)
class Handler:
    """One registered handler."""

    task: str
    kind: HandlerKind
    function: Callable[..., Any]
    signature: Signature
    card: TaskDefinition
    timeout_s: float | None
    max_attempts: int
    backoff: Backoff
    concurrency: int | None
    around: Around | None = None
    """With `process=True` its function is called elsewhere: this is what is done around that."""
    timeout_limit_s: float = float("inf")
    """The longest timeout that a job may ask for, where the handler's own is shorter."""
    attempt_limit: int = 1_000_000
    """The same for attempts."""

    def timeout_of(self, held: LeasedJob) -> float | None:
        """How long this job may take; None: as long as it likes."""
        asked_s, own_s = held.policy.timeout_s, self.timeout_s
        if not asked_s or own_s is None:
            return asked_s or own_s
        return min(asked_s, max(own_s, self.timeout_limit_s))

    def attempt_policy(self, held: LeasedJob) -> AttemptPolicy:
        """What holds for this job: its own wishes, up to the limits, go before the handler's."""
        policy = held.policy
        attempts = self.max_attempts
        if policy.max_attempts:
            attempts = min(policy.max_attempts, max(attempts, self.attempt_limit))
        return AttemptPolicy(
            attempt=held.job.attempt,
            max_attempts=attempts,
            timeout_s=self.timeout_of(held),
            backoff=policy.backoff or self.backoff,
        )


NO_HANDLER: Final = Handler(
    task="",
    kind=HandlerKind.THREAD,
    function=lambda: None,
    signature=Signature(False, None, None, None),
    card=TaskDefinition(""),
    timeout_s=None,
    max_attempts=1,
    backoff=retry.DEFAULT,
    concurrency=None,
)
"""Stands for the handler of a job that is not to be run."""


class App:
    """The handlers of a worker."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._crons: dict[str, CronEntry] = {}
        self._tools: dict[str, Callable[..., object]] = {}
        self._looks: list[Look] = []

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """All of them, by task."""
        return self._handlers

    @property
    def tools(self) -> Mapping[str, Callable[..., object]]:
        """The functions that the task `tool` may call, by name."""
        return self._tools

    @property
    def task_definitions(self) -> list[TaskDefinition]:
        """What others may know about them."""
        return [handler.card for handler in self._handlers.values()]

    @property
    def crons(self) -> Sequence[CronEntry]:
        """What is to be submitted at which times."""
        return tuple(self._crons.values())

    def missing_requirements(self) -> list[MissingRequirement]:
        """What its handlers need and do not have at this moment."""
        return [lack for look in self._looks for lack in _found(look)]

    def check(self, look: Look) -> Look:
        """Let others see what the handlers lack: `look` is asked at each heartbeat, must be quick,
        and names what is missing, or nothing. /readyz and the list of workers show it."""
        self._looks.append(look)
        return look

    def wrapped(self, wrap: Callable[[Handler], Handler]) -> "App":
        """The same app with each handler as `wrap` makes it; this one stays as it is."""
        other = App()
        other._handlers = {task: wrap(handler) for task, handler in self._handlers.items()}
        other._crons = dict(self._crons)
        other._looks = list(self._looks)
        return other

    def handler(
        self,
        task: str,
        *,
        timeout_s: float | None = None,
        retries: int = 0,
        backoff: Backoff = retry.DEFAULT,
        concurrency: int | None = None,
        process: bool = False,
        example: object = None,
    ) -> Callable[[F], F]:
        """Register a function for `task`: an `async def`, a `def` (runs in a thread), or, with
        `process=True`, either of them in a process of its own.

        `timeout_s` and `retries` hold for jobs that do not say otherwise. `concurrency` is how
        many of them run at the same time in one worker. `example` is a payload that works.
        """
        _check(task, timeout_s, retries, concurrency)

        def register(function: F) -> F:
            if task in self._handlers:
                raise ValueError(f"task {task!r} has a handler already")
            asks = signature.read(function)
            if process:
                _check_importable(task, function)
            kind = (
                HandlerKind.PROCESS
                if process
                else HandlerKind.ASYNC
                if asks.is_async
                else HandlerKind.THREAD
            )
            self._handlers[task] = Handler(
                task=task,
                kind=kind,
                function=function,
                signature=asks,
                card=TaskDefinition(task, asks.schema_json(), _example_json(task, asks, example)),
                timeout_s=timeout_s,
                max_attempts=retries + 1,
                backoff=backoff,
                concurrency=concurrency,
            )
            return function

        return register

    def cron(
        self, entry: str, *, tz: str = "UTC", payload: object = None, name: str = ""
    ) -> Callable[[F], F]:
        """Submit a job for this handler at these times, once for the whole fleet:

            @app.cron("*/5 * * * *", tz="Europe/Berlin")
            @app.handler("cleanup")
            async def cleanup(ctx: Context) -> None: ...

        A function that is no handler yet becomes one, for a task of its own name. Two entries for
        the same task need a `name` each: by it the fleet remembers what has been seen to.
        """
        cron = parse_cron(entry, tz)

        def register(function: F) -> F:
            task = next(
                (each.task for each in self._handlers.values() if each.function is function), ""
            )
            if not task:
                task = getattr(function, "__name__", "")
                self.handler(task)(function)
            known = name or task
            if known in self._crons:
                raise ValueError(f"there is a cron entry {known!r} already; give this one a name=")
            asks = self._handlers[task].signature
            payload_json = _payload_json(task, asks, {} if payload is None else payload)
            self._crons[known] = CronEntry(
                known, cron, f"{cron.tz} {cron.text}", task, payload_json
            )
            return function

        return register

    def tool(self, function: F) -> F:
        """Let the task `tool` call this function: a plain `def` with typed parameters and a
        docstring that says what it is for."""
        name = function.__name__
        if name in self._tools:
            raise ValueError(f"there is a tool {name!r} already")
        self._tools[name] = function
        return function


def _found(look: Look) -> list[MissingRequirement]:
    try:
        return list(look())
    except Exception:  # noqa: BLE001 - somebody else's code: the worker goes on
        name = getattr(look, "__name__", "check")
        _log.exception("the check %s broke", name)
        return [MissingRequirement(name, "its check broke", "see the log of the worker")]


def _check(task: str, timeout_s: float | None, retries: int, concurrency: int | None) -> None:
    if not task:
        raise ValueError("a handler needs the name of its task: @app.handler('chat')")
    if timeout_s is not None and not 0 < timeout_s < float("inf"):
        raise ValueError(f"handler {task!r}: timeout_s={timeout_s} must be more than 0")
    if retries < 0:
        raise ValueError(f"handler {task!r}: retries={retries} must not be negative")
    if concurrency is not None and concurrency < 1:
        raise ValueError(f"handler {task!r}: concurrency={concurrency} must be at least 1")


def _check_importable(task: str, function: Callable[..., Any]) -> None:
    name = getattr(function, "__qualname__", "<locals>")
    if "<" in name or not getattr(function, "__module__", ""):
        raise TypeError(
            f"handler {task!r}: with process=True it is imported by another process; define it "
            "with `def` at the top level of a module"
        )


def _example_json(task: str, asks: Signature, example: object) -> str:
    return "" if example is None else _payload_json(task, asks, example, "example")


def _payload_json(task: str, asks: Signature, payload: object, what: str = "payload") -> str:
    try:
        text = to_json(payload)
        asks.check(signature.plain(payload))
    except (NotJson, InvalidPayload) as error:
        raise ValueError(f"handler {task!r}: the {what} does not work: {error}") from None
    return text
