"""The job context of the built-in handlers: a protocol, so that they do not import the worker."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar

from jobwire.job.messages import JobInfo

A = ParamSpec("A")
T = TypeVar("T")


class TaskContext(Protocol):
    """The job that a handler runs."""

    partial: object
    """The result so far; stored with the error if the job fails or is canceled."""

    @property
    def job(self) -> JobInfo: ...

    @property
    def attempt(self) -> int:
        """Starts at 1; plus one after each failed attempt."""
        ...

    def emit(self, kind: str, data: object = None, *, step: str = "") -> Awaitable[None]:
        """Publish an event; awaiting it applies backpressure."""
        ...

    def step(
        self,
        name: str,
        function: Callable[A, Coroutine[Any, Any, T]],
        /,
        *args: A.args,
        **kwargs: A.kwargs,
    ) -> Coroutine[Any, Any, T]:
        """Call the function and record its result; a later run gets the record."""
        ...

    def step_once(
        self,
        name: str,
        function: Callable[A, Coroutine[Any, Any, T]],
        /,
        *args: A.args,
        **kwargs: A.kwargs,
    ) -> Coroutine[Any, Any, T]:
        """The same at most once: raises StepInterrupted if it was started before and has no
        result. After `Retry` it may be called again."""
        ...

    def restart_timeout(self) -> None:
        """Count the job's `timeout_s` from now, after waiting for a resource."""
        ...
