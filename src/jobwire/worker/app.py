"""An App holds the handlers of a worker: one per task, or per task of a named queue.

Made by users (`app = App()`), read by the worker and the CLI. It opens nothing and runs nothing.

    @app.handler("chat", timeout_s=60, retries=3)
    async def chat(ctx: Context, payload: Chat) -> Answer: ...

    @app.handler("*", queue="video-generation", wire="bullmq")
    async def video(ctx: Context) -> Clip: ...
"""

import contextlib
import inspect
import logging
from collections.abc import (
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import PurePath
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    get_args,
    overload,
)

from jobwire.cron import parse as parse_cron
from jobwire.job import retry
from jobwire.job.engine import Use
from jobwire.job.messages import (
    CONFIRM_ATTRIBUTE,
    JobInfo,
    LeasedJob,
    MissingRequirement,
    TaskDefinition,
)
from jobwire.job.retry import Backoff
from jobwire.task import AMBIGUOUS, ATTRIBUTE, HasTask, Task, task_of
from jobwire.worker import signature
from jobwire.worker.codec import NotJson, to_json
from jobwire.worker.context import Context, SyncContext
from jobwire.worker.outcomes import AttemptPolicy, ProcessResult
from jobwire.worker.reports import ReportSink
from jobwire.worker.scheduler import CronEntry
from jobwire.worker.signature import HandlerKind, InvalidPayload, Signature

if TYPE_CHECKING:  # both modules use an App
    from jobwire.worker.middleware import Middleware
    from jobwire.worker.worker import Worker

F = TypeVar("F", bound=Callable[..., Any])
P = TypeVar("P", contravariant=True)
R = TypeVar("R", covariant=True)
Args = ParamSpec("Args")
Returns = TypeVar("Returns", covariant=True)
RequirementCheck = Callable[[], Iterable[MissingRequirement]]
Around = Callable[[JobInfo, ReportSink, Callable[[str], ProcessResult]], ProcessResult]
"""Gets the job, the sink of its reports and a function that runs it in a process, given the
traceparent to continue."""
Lifespan = Callable[[], AbstractAsyncContextManager[object]]
"""Makes the async context manager that each process is in while it runs handlers."""
M = TypeVar("M", bound="Middleware")
_log: Final = logging.getLogger("jobwire.worker")

CATCH_ALL: Final = "*"
"""The task of a handler that serves all tasks of its queue."""
_USES: Final[frozenset[Use]] = frozenset(get_args(Use))


@dataclass(frozen=True, slots=True)
class Handler:
    """One registered handler."""

    task: str
    kind: HandlerKind
    function: Callable[..., Any]
    signature: Signature
    definition: TaskDefinition
    timeout_s: float | None
    max_attempts: int
    backoff: Backoff
    concurrency: int | None
    around: Around | None = None
    """With `process=True` the function is called in another process: this wraps that call."""
    timeout_limit_s: float = float("inf")
    """The longest timeout that a job may request, if the handler's own is shorter."""
    attempt_limit: int = 1_000_000
    """The most attempts that a job may request, if the handler has fewer."""
    queue: str = ""
    """The only queue that it serves; empty for those without handlers of their own."""
    wire: str = ""
    """The wire of that queue; empty for any."""
    uses: frozenset[Use] = frozenset()
    """What it uses beyond the means of every wire."""
    keep_done: timedelta | None = None
    """How long its done jobs are kept, on a wire with a retention; None: as the settings say."""

    @property
    def on_failure(self) -> str:
        """The task of the job that follows a failed one; empty: none."""
        return self.definition.on_failure

    def with_function(self, function: Callable[[Context[Any, Any]], object]) -> "Handler":
        """The same with a wrapper of its function, which takes the context with the payload."""
        signature = replace(self.signature, context_at=0, payload_at=None)
        return replace(self, function=function, signature=signature)

    def timeout_of(self, leased: LeasedJob) -> float | None:
        """The job's timeout; None: unlimited."""
        requested_s, own_s = leased.policy.timeout_s, self.timeout_s
        if not requested_s or own_s is None:
            return requested_s or own_s
        return min(requested_s, max(own_s, self.timeout_limit_s))

    def attempt_policy(self, leased: LeasedJob, progress_attempt: int = 1) -> AttemptPolicy:
        """The limits of this attempt: the job's own, up to the limits, or else the handler's.
        Attempts count from `progress_attempt`, the last one with a new record (D-7)."""
        policy = leased.policy
        attempts = self.max_attempts
        if policy.max_attempts:
            limit = max(attempts, self.attempt_limit) if policy.limited else policy.max_attempts
            attempts = min(policy.max_attempts, limit)
        return AttemptPolicy(
            attempt=leased.job.attempt - progress_attempt + 1,
            max_attempts=attempts,
            timeout_s=self.timeout_of(leased),
            backoff=policy.backoff or self.backoff,
            uses=self.uses,
        )


NO_HANDLER: Final = Handler(
    task="",
    kind=HandlerKind.THREAD,
    function=lambda: None,
    signature=Signature(False, None, None, None),
    definition=TaskDefinition(""),
    timeout_s=None,
    max_attempts=1,
    backoff=retry.DEFAULT,
    concurrency=None,
)
"""The handler of a job that is not to run."""


class _Undecided(NamedTuple):
    """A schedule of a function that is not a handler yet."""

    function: Callable[..., Any]
    name: str
    schedule: Callable[[Handler], None]
    """Makes the cron entry."""


class Routes(NamedTuple):
    """The handlers of one queue."""

    handlers: Mapping[str, Handler]
    """By task."""
    catch_all: Handler | None
    """For all other tasks."""

    @property
    def all(self) -> list[Handler]:
        rest = [] if self.catch_all is None else [self.catch_all]
        return [*self.handlers.values(), *rest]

    @property
    def definitions(self) -> list[TaskDefinition]:
        """The public descriptions of the tasks; a handler of all tasks has none."""
        return [handler.definition for handler in self.handlers.values()]


class HandlerFunction(HasTask[P, R], Protocol[Args, Returns, P, R]):
    """A handler's function after its registration: called as before, and a task for clients."""

    def __call__(self, *args: Args.args, **kwargs: Args.kwargs) -> Returns: ...


class RegisterHandler(Protocol):
    """The decorator that `App.handler` returns: payload and result of the task are those of the
    function."""

    @overload
    def __call__(
        self, function: Callable[[Context[Any, Any], P], Coroutine[Any, Any, R]], /
    ) -> HandlerFunction[[Context[Any, Any], P], Coroutine[Any, Any, R], P, R]: ...
    @overload
    def __call__(
        self, function: Callable[[Context[Any, Any], P], R], /
    ) -> HandlerFunction[[Context[Any, Any], P], R, P, R]: ...
    @overload
    def __call__(
        self, function: Callable[[Context], Coroutine[Any, Any, R]], /
    ) -> HandlerFunction[[Context], Coroutine[Any, Any, R], dict[str, Any], R]: ...
    @overload
    def __call__(
        self, function: Callable[[Context], R], /
    ) -> HandlerFunction[[Context], R, dict[str, Any], R]: ...
    @overload
    def __call__(
        self, function: Callable[[Context[P, Any]], Coroutine[Any, Any, R]], /
    ) -> HandlerFunction[[Context[P, Any]], Coroutine[Any, Any, R], P, R]: ...
    @overload
    def __call__(
        self, function: Callable[[Context[P, Any]], R], /
    ) -> HandlerFunction[[Context[P, Any]], R, P, R]: ...
    @overload
    def __call__(
        self, function: Callable[[SyncContext[Any, Any], P], R], /
    ) -> HandlerFunction[[SyncContext[Any, Any], P], R, P, R]: ...
    @overload
    def __call__(
        self, function: Callable[[SyncContext[P, Any]], R], /
    ) -> HandlerFunction[[SyncContext[P, Any]], R, P, R]: ...
    @overload
    def __call__(
        self, function: Callable[[P], Coroutine[Any, Any, R]], /
    ) -> HandlerFunction[[P], Coroutine[Any, Any, R], P, R]: ...
    @overload
    def __call__(self, function: Callable[[P], R], /) -> HandlerFunction[[P], R, P, R]: ...
    @overload
    def __call__(self, function: F, /) -> F: ...


class App:
    """The handlers of a worker."""

    def __init__(self, name: str = "", *, lifespan: Lifespan | None = None) -> None:
        """`name` is the queue of its handlers' tasks on the wire of the jobs API; without one it is
        the module that makes the App, whichever module a worker is started with.

        `lifespan` is entered once in each process before its first job, and left after its last:

            @contextlib.asynccontextmanager
            async def lifespan() -> AsyncIterator[State]:
                async with asyncpg.create_pool(DSN) as pool:
                    yield State(pool)

        Handlers have what it yields as `ctx.state`.
        """
        self.name = name or _calling_module()
        self.former_name = ""
        """The queue that earlier releases would have used; a worker reads it until it is empty."""
        self.is_named = bool(name)
        self.lifespan = lifespan
        self._middlewares: list[Middleware] = []
        self._handlers: dict[str, Handler] = {}
        self._queue_handlers: dict[tuple[str, str, str], Handler] = {}
        """By wire, queue and task."""
        self._crons: dict[str, CronEntry] = {}
        self._undecided: list[_Undecided] = []
        """Schedules of functions that are not handlers yet."""
        self._tools: dict[str, Callable[..., object]] = {}
        self._checks: list[RequirementCheck] = []
        self._workers: list[Worker] = []
        """Those that run it or a copy of it."""

    @property
    def worker(self) -> "Worker":
        """The worker that runs this App, from its lifespan on: its `slots` can be changed, and it
        can be paused. RuntimeError if none does in this process, as in that of a handler with
        `process=True`."""
        if not self._workers:
            raise RuntimeError("no worker runs this App in this process")
        return self._workers[-1]

    @contextlib.contextmanager
    def run_by(self, worker: "Worker") -> Generator[None]:
        """The worker runs this App meanwhile."""
        self._workers.append(worker)
        try:
            yield
        finally:
            self._workers.remove(worker)

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers that are not for a named queue, by task."""
        # Functions with a schedule that no `handler` has followed.
        while self._undecided:
            function = self._undecided[0].function
            self.handler(getattr(function, "__name__", ""))(function)
        return self._handlers

    @property
    def is_empty(self) -> bool:
        """It has no handlers at all."""
        return not (self.handlers or self._queue_handlers)

    def routes(self, wire: str, queue: str) -> Routes:
        """The handlers of a queue: its own ones, or those without a queue if it has none."""
        own = self._own_routes(wire, queue)
        return own if own.all else Routes(self.handlers, None)

    def shared_routes(self, wire: str, queues: Sequence[str]) -> dict[str, Routes]:
        """The handlers of queues that share them: of two handlers of a task, a queue's own one."""
        own = {queue: self._own_routes(wire, queue) for queue in queues}
        shared = dict(self.handlers)
        for routes in own.values():
            for task, handler in routes.handlers.items():
                shared.setdefault(task, handler)
        return {
            queue: Routes({**shared, **routes.handlers}, routes.catch_all)
            for queue, routes in own.items()
        }

    def _own_routes(self, wire: str, queue: str) -> Routes:
        found = {
            task: handler
            for for_wire in ("", wire)
            for (own_wire, own_queue, task), handler in self._queue_handlers.items()
            if own_queue == queue and own_wire == for_wire
        }
        catch_all = found.pop(CATCH_ALL, None)
        return Routes(found, catch_all)

    def queues(self, wire: str) -> list[str]:
        """The queues of a wire that have handlers of their own."""
        return list(dict.fromkeys(q for own, q, _ in self._queue_handlers if own == wire))

    @property
    def queue_handlers(self) -> Sequence[Handler]:
        """The handlers that are for a named queue."""
        return tuple(self._queue_handlers.values())

    @property
    def tools(self) -> Mapping[str, Callable[..., object]]:
        """The functions that the task `tool` may call, by name."""
        return self._tools

    @property
    def task_definitions(self) -> list[TaskDefinition]:
        """The public descriptions of the tasks."""
        return [handler.definition for handler in self.handlers.values()]

    @property
    def crons(self) -> Sequence[CronEntry]:
        """The cron entries: what is submitted when."""
        _ = self.handlers  # decides about those that are undecided
        return tuple(self._crons.values())

    def missing_requirements(self) -> list[MissingRequirement]:
        """What the handlers need and do not have now."""
        return [missing for check in self._checks for missing in _run_check(check)]

    def check(self, check: RequirementCheck) -> RequirementCheck:
        """Register a check that returns the missing requirements, or nothing. It is called at each
        heartbeat and must be quick. /readyz and the list of workers show the result."""
        self._checks.append(check)
        return check

    @property
    def middlewares(self) -> "Sequence[Middleware]":
        """The middleware around all handlers, outermost first."""
        return tuple(self._middlewares)

    def middleware(self, function: M) -> M:
        """Register an `async def (ctx, call_next)` that runs around every handler; it returns the
        result, which `await call_next()` gives. The first registered is the outermost."""
        self._middlewares.append(function)
        return function

    def wrapped(self, wrap: Callable[[Handler], Handler]) -> "App":
        """A copy of the app with each handler replaced by `wrap(handler)`."""
        wrapped = App(self.name, lifespan=self.lifespan)
        # An App of an interactive session has no name.
        wrapped.name, wrapped.former_name = self.name, self.former_name
        wrapped._middlewares = list(self._middlewares)
        wrapped._handlers = {task: wrap(handler) for task, handler in self.handlers.items()}
        wrapped._queue_handlers = {
            place: wrap(handler) for place, handler in self._queue_handlers.items()
        }
        wrapped._crons = dict(self._crons)
        wrapped._tools = dict(self._tools)
        wrapped._checks = list(self._checks)
        wrapped._workers = self._workers
        return wrapped

    def handler(
        self,
        task: str,
        *,
        queue: str = "",
        wire: str = "",
        timeout_s: float | None = None,
        retries: int = 0,
        backoff: Backoff = retry.DEFAULT,
        concurrency: int | None = None,
        process: bool = False,
        example: object = None,
        uses: Collection[Use] = (),
        keep_done: timedelta | None = None,
        on_failure: "str | HasTask[Any, Any]" = "",
    ) -> "RegisterHandler":
        """Register a function for `task`: an `async def`, a `def` (runs in a thread), or, with
        `process=True`, either of them in its own process.

        With `queue` (and `wire`, if several wires have such a queue) it serves that queue only, and
        the queue has no other handlers than its own; the task "*" is then any task that no other
        handler of the queue names. A function may be registered several times.

        `timeout_s` and `retries` apply to jobs that request no other. `concurrency` is how many of
        them run at a time in one worker. `example` is a valid payload. `uses` names what it needs
        beyond the means of every wire: "postpone", "rate_limit", "children", "update_data",
        "durable"; a worker refuses to start on a queue that lacks one of them. `keep_done` is how
        long its done jobs are kept, in place of `jobs.keep_done`. `on_failure` is another handler
        of this App, or the name of its task: a job of it is submitted when a job of this one has
        ended with an error, with a `FailedJob` as payload.
        """
        _check(task, timeout_s, retries, concurrency)
        if keep_done is not None and keep_done < timedelta(seconds=1):
            raise ValueError(f"handler {task!r}: keep_done={keep_done} must be at least 1 s")
        _check_queue(task, queue, wire)
        following = on_failure if isinstance(on_failure, str) else task_of(on_failure).name
        if following == task:
            raise ValueError(f"handler {task!r}: on_failure= names the handler itself")
        if unknown := set(uses) - _USES:
            known = ", ".join(sorted(_USES))
            raise ValueError(f"handler {task!r}: uses={sorted(unknown)} is unknown; it is {known}")

        def register(function: F) -> F:
            place = (wire, queue, task)
            if task in self._handlers if not queue else place in self._queue_handlers:
                where = f" on the queue {queue!r}" if queue else ""
                raise ValueError(f"task {task!r} has a handler already{where}")
            parameters = signature.read(function)
            if process:
                _check_importable(f"handler {task!r}: with process=True", function)
                if self.lifespan is not None:
                    what = f"handler {task!r}: with process=True and a lifespan"
                    _check_importable(what, self.lifespan)
            kind = HandlerKind.ASYNC if parameters.is_async else HandlerKind.THREAD
            if process:
                kind = HandlerKind.PROCESS
            made = Handler(
                task=task,
                kind=kind,
                function=function,
                signature=parameters,
                definition=TaskDefinition(
                    task,
                    parameters.schema_json(),
                    _example_json(task, parameters, example),
                    following,
                ),
                timeout_s=timeout_s,
                max_attempts=retries + 1,
                backoff=backoff,
                concurrency=concurrency,
                queue=queue,
                wire=wire,
                uses=frozenset(uses),
                keep_done=keep_done,
            )
            if queue:
                self._queue_handlers[place] = made
            else:
                self._handlers[task] = made
            _attach_task(function, task, parameters.result_type)
            self._schedule(made)
            return function

        return cast("RegisterHandler", register)

    def cron(
        self, entry: str, *, tz: str = "UTC", payload: object = None, name: str = ""
    ) -> Callable[[F], F]:
        """Submit a job for this handler at these times, once for the whole fleet:

            @app.cron("*/5 * * * *", tz="Europe/Berlin")
            @app.handler("cleanup")
            async def cleanup(ctx: Context) -> None: ...

        The two decorators may be in either order. A function that is not a handler becomes one, for
        a task of its own name. Two entries for the same task need a `name` each: the fleet stores
        their due times under it.
        """
        cron = parse_cron(entry, tz)

        def register(function: F) -> F:
            parameters = signature.read(function)
            task = getattr(function, "__name__", "")
            payload_json = _payload_json(task, parameters, {} if payload is None else payload)

            def schedule(handler: Handler) -> None:
                if handler.task == CATCH_ALL:
                    raise ValueError("a handler of '*' has no task of its own to schedule")
                entry_name = name or handler.task
                _check_new(entry_name, self._crons)
                place = (handler.task, payload_json, handler.queue, handler.wire)
                self._crons[entry_name] = CronEntry(
                    entry_name, cron, f"{cron.tz} {cron.text}", *place
                )

            handlers = (*self._handlers.values(), *self._queue_handlers.values())
            of_function = [each for each in handlers if each.function is function]
            if of_function:
                schedule(of_function[-1])
            else:
                others = [each.name for each in self._undecided if each.function is function]
                _check_new(name or task, [other or task for other in others])
                self._undecided.append(_Undecided(function, name, schedule))
            return function

        return register

    def _schedule(self, handler: Handler) -> None:
        """Make the cron entries of a function that has just become a handler."""
        waiting, self._undecided = self._undecided, []
        for each in waiting:
            if each.function is handler.function:
                each.schedule(handler)
            else:
                self._undecided.append(each)

    @overload
    def tool(self, function: F) -> F: ...

    @overload
    def tool(self, *, confirm: bool = ...) -> Callable[[F], F]: ...

    def tool(self, function: F | None = None, *, confirm: bool = False) -> F | Callable[[F], F]:
        """Let the task `tool` call this function: a plain `def` with typed parameters and a
        docstring that describes its purpose. With `confirm=True` a job first reports the call that
        it would make; it runs only when the caller confirms it."""
        if function is None:
            return lambda function: self._add_tool(function, confirm)
        return self._add_tool(function, confirm)

    def _add_tool(self, function: F, confirm: bool) -> F:
        name = function.__name__
        if name in self._tools:
            raise ValueError(f"there is a tool {name!r} already")
        if confirm:
            function.__dict__[CONFIRM_ATTRIBUTE] = True
        self._tools[name] = function
        return function


def _calling_module() -> str:
    """The module that makes an App; for a program the name of its file, empty if it has none."""
    frame = inspect.currentframe()
    caller = frame and frame.f_back and frame.f_back.f_back
    module = caller.f_globals if caller else {}
    name = str(module.get("__name__", ""))
    return PurePath(str(module.get("__file__") or "")).stem if name == "__main__" else name


def _run_check(check: RequirementCheck) -> list[MissingRequirement]:
    try:
        return list(check())
    except Exception:  # noqa: BLE001 - user code: the worker goes on
        name = getattr(check, "__name__", "check")
        _log.exception(
            "requirement check failed check=%(check)s; reported as missing", {"check": name}
        )
        return [MissingRequirement(name, "its check failed", "see the log of the worker")]


def _check(task: str, timeout_s: float | None, retries: int, concurrency: int | None) -> None:
    if not task:
        raise ValueError("a handler needs the name of its task: @app.handler('chat')")
    if timeout_s is not None and not 0 < timeout_s < float("inf"):
        raise ValueError(f"handler {task!r}: timeout_s={timeout_s} must be more than 0")
    if retries < 0:
        raise ValueError(f"handler {task!r}: retries={retries} must not be negative")
    if concurrency is not None and concurrency < 1:
        raise ValueError(f"handler {task!r}: concurrency={concurrency} must be at least 1")


def _check_queue(task: str, queue: str, wire: str) -> None:
    if wire and not queue:
        raise ValueError(f"handler {task!r}: wire={wire!r} needs the name of a queue, queue=")
    if task == CATCH_ALL and not queue:
        raise ValueError("handler '*': name the queue whose tasks it serves, queue=")


def _check_new(entry_name: str, others: Collection[str]) -> None:
    if entry_name in others:
        raise ValueError(f"there is a cron entry {entry_name!r} already; give this one a name=")


def _check_importable(what: str, function: Callable[..., Any]) -> None:
    name = getattr(function, "__qualname__", "<locals>")
    if "<" in name or not getattr(function, "__module__", ""):
        raise TypeError(
            f"{what} another process imports it; define it with `def` at the top level of a module"
        )


def _attach_task(function: Callable[..., Any], name: str, result_type: object) -> None:
    """For clients: `client.run(function, payload)`. A function of several tasks has none."""
    earlier = getattr(function, ATTRIBUTE, None)
    is_same = earlier is None or (isinstance(earlier, Task) and earlier.name == name)
    attached = Task[Any, Any](name, object, cast(Any, result_type)) if is_same else AMBIGUOUS
    with contextlib.suppress(AttributeError, TypeError):  # a method takes no attributes
        setattr(function, ATTRIBUTE, attached)


def _example_json(task: str, parameters: Signature, example: object) -> str:
    return "" if example is None else _payload_json(task, parameters, example, "example")


def _payload_json(task: str, parameters: Signature, payload: object, what: str = "payload") -> str:
    try:
        text = to_json(payload)
        parameters.check(signature.plain(payload))
    except (NotJson, InvalidPayload) as error:
        raise ValueError(f"handler {task!r}: the {what} is not valid: {error}") from None
    return text
