"""What a handler knows of its job, and how it reports while it runs.

One Context for handlers of every kind. Its reports may be awaited and, in an `async def`, should
be: that is where a handler waits when it reports faster than the server accepts. In a `def` the
same call blocks until the report is accepted.

It knows no wire: reports go to a sink (`reports.py`).
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, ParamSpec, overload

from jobwire.job.engine import Use
from jobwire.job.errors import ChildFailed, Fail, JobSuspended
from jobwire.job.ids import new_job_id
from jobwire.job.messages import (
    CHILD_KIND,
    DATA_KIND,
    SIGNAL_FIELD,
    JobId,
    JobInfo,
    Report,
    check_kind,
)
from jobwire.task import HasTask
from jobwire.worker import steps, waits
from jobwire.worker.codec import MAX_REPORT_BYTES, to_json
from jobwire.worker.reports import REPORT_ADDED, ChildrenAnswer, ReportSink
from jobwire.worker.waits import Child

MYPY = False  # mypy takes it for True

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # A bare `Context` has a payload of any JSON object, and any state.
    if not MYPY:
        P = TypeVar("P", default=dict[str, Any])
        S = TypeVar("S", default=Any)
    else:
        # If `Any` is in the type of a function, mypy takes it for `Any` behind an overloaded
        # decorator such as `App.handler`. These classes act like it and are not seen as it.
        class AnyObject(dict[str, Any]): ...

        class AnyState(Any): ...

        P = TypeVar("P", default=AnyObject)  # pyright: ignore[reportConstantRedefinition]
        S = TypeVar("S", default=AnyState)  # pyright: ignore[reportConstantRedefinition]
    T = TypeVar("T")
    Q = TypeVar("Q")

    class _Parameters(Generic[P, S]):
        __slots__ = ()
else:
    from types import GenericAlias
    from typing import TypeVar

    P, S, T, Q = TypeVar("P"), TypeVar("S"), TypeVar("T"), TypeVar("Q")

    class _Parameters:
        """One or two parameters: before Python 3.13 a type variable has no default at run time."""

        __slots__ = ()
        __class_getitem__ = classmethod(GenericAlias)


A = ParamSpec("A")
_NO_STATE: Any = None
_LEVELS: Final = frozenset({"debug", "info", "warning", "error"})


class Context(_Parameters[P, S]):
    """Given to a handler: `async def chat(ctx: Context[Chat]) -> str`, or `Context[Chat, State]`
    with the type of `ctx.state`."""

    __slots__ = ("job", "partial", "payload", "sink", "state")

    def __init__(self, job: JobInfo, payload: P, sink: ReportSink, state: S = _NO_STATE) -> None:
        self.job = job
        self.payload = payload
        """The job's payload; of the annotated type, if there is one."""
        self.partial: object = None
        """The result so far. Set it as you go: if the job fails, times out or is canceled, it is
        stored with the error."""
        self.state = state
        """What the App's lifespan has yielded in this process."""
        self.sink = sink
        """Where its reports go."""

    @property
    def attempt(self) -> int:
        """1 at first; one more after each failed attempt."""
        return self.job.attempt

    @property
    def cancelled(self) -> bool:
        """Whether to stop. An `async def` is cancelled anyway; a `def` has to check this."""
        return self.sink.stopped

    def restart_timeout(self) -> None:
        """Count the job's `timeout_s` from now: for work that had to wait for a resource first,
        for example for a model that other jobs use."""
        self.sink.restart_timeout()

    def progress(self, percent: float | Mapping[str, object], message: str = "") -> Awaitable[None]:
        """Report progress, 0 to 100, and the current step as text; or an object of your own, with
        the text as a log line."""
        if isinstance(percent, Mapping):
            if message:
                self.log(message)
            return self.emit("progress", percent)
        if not 0 <= percent <= 100 and not self.sink.any_progress:
            raise ValueError(f"progress({percent!r}): percent must lie between 0 and 100")
        return self.emit("progress", {"percent": percent, "message": message})

    def log(self, message: str, level: str = "info", **fields: object) -> Awaitable[None]:
        """Report a log line to the job's event streams."""
        if level not in _LEVELS:
            raise ValueError(f"log(level={level!r}): known are {', '.join(sorted(_LEVELS))}")
        return self.emit("log", {"level": level, "message": message, **fields})

    def emit(self, kind: str, data: object = None, *, step: str = "") -> Awaitable[None]:
        """Report an event of your own kind, with data that has a JSON form."""
        check_kind(kind, self.sink.reserved_kinds)
        data_json = "{}" if data is None else to_json(data, MAX_REPORT_BYTES)
        report, replay = Report(kind, data_json, step), self.sink.replay
        if replay is not None and replay.hold(report, self.sink.push):
            return REPORT_ADDED
        return self.sink.add(report)

    def update_data(self, payload: object) -> Awaitable[None]:
        """Replace the job's payload, for later attempts and for those who look at the job; this
        attempt's `ctx.payload` stays. Needs `uses={"update_data"}`."""
        self._require("update_data")
        return self.sink.add(Report(DATA_KIND, to_json(payload)))

    def add_child(
        self,
        queue: str,
        task: str,
        payload: object = None,
        *,
        job_id: str = "",
        opts: Mapping[str, object] | None = None,
        children: Sequence[Mapping[str, object]] = (),
    ) -> Awaitable[None]:
        """Submit a job that this one waits for when the handler raises `WaitForChildren`. With a
        `job_id` of your own choice a repeated attempt adds no second child. `opts` and `children`
        have the wire's own form. A child that the wire refuses fails the job. Needs
        `uses={"children"}`."""
        self._require("children")
        payload_json = to_json({} if payload is None else payload)
        chosen_id = JobId(job_id) if job_id else new_job_id()
        request = {
            "queue": queue,
            "task": task,
            "payload_json": payload_json,
            "job_id": chosen_id,
            "opts": opts or {},
            "children": children,
        }
        return self.sink.add(Report(CHILD_KIND, to_json(request)))

    def children(self) -> ChildrenAnswer:
        """The job's children: what they returned, and why they failed. `await ctx.children()`; in a
        `def` `ctx.children().result()`. Needs `uses={"children"}`."""
        self._require("children")
        return self.sink.children()

    @overload
    def step(
        self,
        name: str,
        function: Callable[A, Coroutine[Any, Any, T]],
        /,
        *args: A.args,
        **kwargs: A.kwargs,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def step(
        self, name: str, function: Callable[A, T], /, *args: A.args, **kwargs: A.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        """Call the function and record its result, before the result is returned. A run of the
        job that finds the result recorded does not call the function. The function may be an
        `async def` or a `def`; its result needs a JSON form, and is returned in the type of the
        function's annotation.

        At least once: the function is called again if its worker died before the record was
        written. A name that is used again gets a number; where the order of calls may change, give
        each a name of its own.
        """
        plan = steps.plan(self.sink.steps, name, function, once=False)
        return steps.run(plan, self.sink, function, args, kwargs)

    @overload
    def step_once(
        self,
        name: str,
        function: Callable[A, Coroutine[Any, Any, T]],
        /,
        *args: A.args,
        **kwargs: A.kwargs,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def step_once(
        self, name: str, function: Callable[A, T], /, *args: A.args, **kwargs: A.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    def step_once(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        """The same, called at most once: its start is recorded first. A run that finds the start
        without a result raises `StepInterrupted`. A function that raises `Retry` may be called
        again."""
        plan = steps.plan(self.sink.steps, name, function, once=True)
        return steps.run(plan, self.sink, function, args, kwargs)

    @property
    def replaying(self) -> bool:
        """Whether the handler has run before for this job, at least in part."""
        if self.job.attempt > 1 or self.job.deliveries > 1:
            return True
        return any(not field.startswith(SIGNAL_FIELD) for field in self.sink.steps.fields)

    def sleep(
        self, seconds: float | timedelta, *, name: str = "sleep"
    ) -> Coroutine[Any, Any, None]:
        """Let the job wait this long. Below five seconds it waits in the worker; otherwise it is
        suspended, which ends this run, and a later one goes on here. A name that is used again gets
        a number, as that of a step. Needs `uses={"durable"}`, as all calls that suspend."""
        self._require_durable()
        return steps.run(waits.sleep(self.sink.steps, seconds, name), self.sink)

    @overload
    def wait_for_signal(
        self, name: str, kind: type[T], *, timeout_s: float | timedelta = ...
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def wait_for_signal(
        self, name: str, kind: None = ..., *, timeout_s: float | timedelta = ...
    ) -> Coroutine[Any, Any, Any]: ...
    def wait_for_signal(
        self, name: str, kind: Any = None, *, timeout_s: float | timedelta = waits.DEFAULT_WAIT_S
    ) -> Coroutine[Any, Any, Any]:
        """The value of a signal (`client.signal(job_id, name, value)`), in the type `kind`. The job
        is suspended until it comes; one that came before is kept. SignalTimeout, which is a
        TimeoutError, after `timeout_s` (at most 30 days). A signal has one value: the same name
        returns it again."""
        self._require_durable()
        return steps.run(waits.signal(self.sink.steps, name, kind, timeout_s), self.sink)

    @overload
    def submit(
        self, task: str, payload: object = ..., *, key: str | None = ...
    ) -> Coroutine[Any, Any, Child[Any]]: ...
    @overload
    def submit(
        self, task: HasTask[Q, T], payload: "Q | Mapping[str, object]", *, key: str | None = ...
    ) -> Coroutine[Any, Any, Child[T]]: ...
    def submit(
        self, task: Any, payload: Any = None, *, key: str | None = None
    ) -> Coroutine[Any, Any, Child[Any]]:
        """Submit a job whose end this one can wait for with `gather`. It is made once, however
        often the handler starts. Children of the same task are told apart by their number, or by
        `key` where the order of the calls may change."""
        self._require_durable()
        plan = waits.submit(self.sink.steps, self.job.id, task, payload, key)
        return steps.run(plan, self.sink)

    @overload
    def gather(
        self, *children: Child[T], return_exceptions: Literal[False] = ...
    ) -> Coroutine[Any, Any, list[T]]: ...
    @overload
    def gather(
        self, *children: Child[T], return_exceptions: bool
    ) -> Coroutine[Any, Any, list[T | ChildFailed]]: ...
    def gather(
        self, *children: Child[Any], return_exceptions: bool = False
    ) -> Coroutine[Any, Any, Any]:
        """The results of children, in their order. The job is suspended until all have ended. If
        one has failed: ChildFailed, or with `return_exceptions` that in its place."""
        self._require_durable()
        plan = waits.gather(self.sink.steps, children, return_exceptions)
        return steps.run(plan, self.sink)

    @overload
    def run(
        self, task: str, payload: object = ..., *, key: str | None = ...
    ) -> Coroutine[Any, Any, Any]: ...
    @overload
    def run(
        self, task: HasTask[Q, T], payload: "Q | Mapping[str, object]", *, key: str | None = ...
    ) -> Coroutine[Any, Any, T]: ...
    def run(
        self, task: Any, payload: Any = None, *, key: str | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Submit a child and return its result."""

        async def run(submitting: Coroutine[Any, Any, Child[Any]]) -> Any:
            (result,) = await self.gather(await submitting)
            return result

        return run(self.submit(task, payload, key=key))

    def restart(self, payload: object) -> Coroutine[Any, Any, NoReturn]:
        """Begin anew with another payload and an empty record, as the same job: for handlers that
        never end and would fill their record."""
        self._require_durable()
        return steps.run(waits.restart(self.sink.steps, payload), self.sink)

    def _require(self, use: Use) -> None:
        if use not in self.sink.uses:
            raise undeclared(use)

    def _require_durable(self) -> None:
        """D-18: in a queue that others read, a job that goes on could start from zero."""
        self._require("durable")
        rules = self.sink.steps.rules
        if rules is not None and self.job.source == rules.shared_queue:
            raise Fail(
                "unsupported",
                f"jobs of the queue {self.job.source!r} cannot be suspended, since workers of "
                "others may take them: name the App or the handler's queue",
            )


class SyncContext(Context[P, S]):
    """Given to a handler that is a `def`: its steps return their results, without `await`. A `def`
    whose parameter is annotated `Context` gets it, too; this annotation is for type checkers."""

    __slots__ = ()

    @overload
    def step(
        self,
        name: str,
        function: Callable[A, Coroutine[Any, Any, T]],
        /,
        *args: A.args,
        **kwargs: A.kwargs,
    ) -> T: ...
    @overload
    def step(
        self, name: str, function: Callable[A, T], /, *args: A.args, **kwargs: A.kwargs
    ) -> T: ...
    def step(  # pyright: ignore[reportIncompatibleMethodOverride] - a `def` cannot await
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        plan = steps.plan(self.sink.steps, name, function, once=False)
        return steps.run_sync(plan, self.sink, function, args, kwargs)

    @overload
    def step_once(
        self,
        name: str,
        function: Callable[A, Coroutine[Any, Any, T]],
        /,
        *args: A.args,
        **kwargs: A.kwargs,
    ) -> T: ...
    @overload
    def step_once(
        self, name: str, function: Callable[A, T], /, *args: A.args, **kwargs: A.kwargs
    ) -> T: ...
    def step_once(  # pyright: ignore[reportIncompatibleMethodOverride] - a `def` cannot await
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        plan = steps.plan(self.sink.steps, name, function, once=True)
        return steps.run_sync(plan, self.sink, function, args, kwargs)

    def sleep(  # pyright: ignore[reportIncompatibleMethodOverride] - a `def` cannot await
        self, seconds: float | timedelta, *, name: str = "sleep"
    ) -> None:
        self._require_durable()
        steps.run_sync(waits.sleep(self.sink.steps, seconds, name), self.sink)

    @overload
    def wait_for_signal(
        self, name: str, kind: type[T], *, timeout_s: float | timedelta = ...
    ) -> T: ...
    @overload
    def wait_for_signal(
        self, name: str, kind: None = ..., *, timeout_s: float | timedelta = ...
    ) -> Any: ...
    def wait_for_signal(  # pyright: ignore[reportIncompatibleMethodOverride] - a `def` cannot await
        self, name: str, kind: Any = None, *, timeout_s: float | timedelta = waits.DEFAULT_WAIT_S
    ) -> Any:
        self._require_durable()
        return steps.run_sync(waits.signal(self.sink.steps, name, kind, timeout_s), self.sink)

    @overload
    def submit(self, task: str, payload: object = ..., *, key: str | None = ...) -> Child[Any]: ...
    @overload
    def submit(
        self, task: HasTask[Q, T], payload: "Q | Mapping[str, object]", *, key: str | None = ...
    ) -> Child[T]: ...
    def submit(  # pyright: ignore[reportIncompatibleMethodOverride] - a `def` cannot await
        self, task: Any, payload: Any = None, *, key: str | None = None
    ) -> Child[Any]:
        self._require_durable()
        plan = waits.submit(self.sink.steps, self.job.id, task, payload, key)
        return steps.run_sync(plan, self.sink)

    @overload
    def gather(self, *children: Child[T], return_exceptions: Literal[False] = ...) -> list[T]: ...
    @overload
    def gather(self, *children: Child[T], return_exceptions: bool) -> list[T | ChildFailed]: ...
    def gather(  # pyright: ignore[reportIncompatibleMethodOverride] - a `def` cannot await
        self, *children: Child[Any], return_exceptions: bool = False
    ) -> Any:
        self._require_durable()
        plan = waits.gather(self.sink.steps, children, return_exceptions)
        return steps.run_sync(plan, self.sink)

    @overload
    def run(self, task: str, payload: object = ..., *, key: str | None = ...) -> Any: ...
    @overload
    def run(
        self, task: HasTask[Q, T], payload: "Q | Mapping[str, object]", *, key: str | None = ...
    ) -> T: ...
    def run(  # pyright: ignore[reportIncompatibleMethodOverride] - a `def` cannot await
        self, task: Any, payload: Any = None, *, key: str | None = None
    ) -> Any:
        (result,) = self.gather(self.submit(task, payload, key=key))
        return result

    def restart(self, payload: object) -> NoReturn:
        self._require_durable()
        steps.run_sync(waits.restart(self.sink.steps, payload), self.sink)
        raise JobSuspended


def undeclared(use: Use) -> Fail:
    """The failure of a handler that uses what it has not declared."""
    how = f"@app.handler(…, uses={{{use!r}}})"
    return Fail("unsupported", f"the handler uses {use!r} and does not declare it: {how}")
