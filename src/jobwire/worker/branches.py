"""Branches of a handler: which of them work, and which wait without a worker (D-9a).

A run is suspended when nothing of it works any more: its steps have ended and are recorded, and no
branch that was just about to begin one is late. Then the job waits for what all its branches wait
for. A branch whose own call was cancelled, by `asyncio.timeout` for example, waits no longer.

Used on the event loop of a coroutine, in the worker and in a child process.
"""

import asyncio
from asyncio import AbstractEventLoop, Future, Task
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Final

from jobwire.job.messages import Restarted, Suspended

_QUIET_TURNS: Final = 8
"""After so many turns of the loop without a durable call no branch is about to make one: a task
that has ended wakes the one that awaits it two turns later."""

tasks_of_run: Final[ContextVar[set[Task[Any]] | None]] = ContextVar("tasks_of_run", default=None)
"""Where tasks are noted that the code of a run creates; see `note_tasks`."""


class MustWait(Exception):
    """A request that the server accepts later: its branch waits so."""

    def __init__(self, outcome: Suspended) -> None:
        super().__init__(f"waits for {outcome.name}")
        self.outcome = outcome


class Work:
    """A durable call that is being made: the function of a step, or a request."""

    __slots__ = ("outer", "waits")

    def __init__(self, outer: "Work | None") -> None:
        self.outer = outer
        """The step whose function has made this call."""
        self.waits = 0
        """How many branches of it wait: with any, it is not waited for."""


_current: Final[ContextVar[Work | None]] = ContextVar("durable_call", default=None)


class Branches:
    """The durable calls of one run."""

    __slots__ = (
        *("_changes", "_is_alone", "_is_looking", "_loop", "_quiet", "_seen", "_suspend"),
        *("_waits", "_working"),
    )

    def __init__(
        self,
        loop: AbstractEventLoop,
        is_alone: Callable[[], bool],
        suspend: Callable[[Suspended | Restarted], object],
    ) -> None:
        """`is_alone` tells whether the handler has no tasks of its own; `suspend` ends the run."""
        self._loop = loop
        self._is_alone = is_alone
        self._suspend: Callable[[Suspended | Restarted], object] | None = suspend
        self._waits: dict[Future[None], Suspended | Restarted] = {}
        self._working = 0
        self._changes = self._seen = self._quiet = 0
        self._is_looking = False
        _current.set(None)  # a run begins in this context

    @property
    def any_waits(self) -> bool:
        return bool(self._waits)

    def begin(self) -> Work:
        """A durable call begins in this branch."""
        work = Work(_current.get())
        _current.set(work)
        self._working += 1
        self._changes += 1
        return work

    def end(self, work: Work) -> None:
        """It has ended."""
        _current.set(work.outer)
        self._changes += 1
        if not work.waits:
            self._working -= 1
        self._look()

    async def wait(self, outcome: Suspended | Restarted) -> None:
        """Wait in this branch until the run ends, or until the branch is cancelled."""
        future = self._loop.create_future()
        self._waits[future] = outcome
        self._changes += 1
        here = work = _current.get()
        while work is not None:
            self._working -= not work.waits
            work.waits += 1
            work = work.outer
        self._look()
        try:
            await future
        finally:
            del self._waits[future]
            self._changes += 1
            while here is not None:
                here.waits -= 1
                self._working += not here.waits
                here = here.outer

    def _look(self) -> None:
        if self._waits and not self._working and not self._is_looking:
            self._is_looking = True
            self._quiet = 0
            self._loop.call_soon(self._check)

    def _check(self) -> None:
        if self._suspend is None or not self._waits or self._working:
            self._is_looking = False
            return
        self._quiet = self._quiet + 1 if self._seen == self._changes else 1
        self._seen = self._changes
        if self._quiet < _QUIET_TURNS and not self._is_alone():
            self._loop.call_soon(self._check)
            return
        suspend, self._suspend = self._suspend, None
        suspend(joined(self._waits.values()))


def joined(outcomes: Iterable[Suspended | Restarted]) -> Suspended | Restarted:
    """The outcome of a run whose branches wait so, of which there is at least one."""
    waits = dict[Suspended, None]()
    for outcome in outcomes:
        if isinstance(outcome, Restarted):
            return outcome
        waits.update(dict.fromkeys(outcome.alone()))
    first, *others = waits
    return first.beside(others) if others else first


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────


def note_tasks(loop: AbstractEventLoop) -> None:
    """From now on, tasks of this loop are noted in the `tasks_of_run` of their creator."""
    create: Any = loop.get_task_factory()
    if isinstance(create, _Noting):
        return
    loop.set_task_factory(_Noting(create))


class _Noting:
    """A task factory around another one, or around that of asyncio."""

    def __init__(self, create: Any) -> None:
        self._create = create or _new_task

    def __call__(self, loop: AbstractEventLoop, work: Any, /, **options: Any) -> Any:
        task = self._create(loop, work, **options)
        context = options.get("context")
        tasks = tasks_of_run.get() if context is None else context.get(tasks_of_run)
        if tasks is not None:
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return task


def _new_task(loop: AbstractEventLoop, work: Any, /, **options: Any) -> Any:
    return Task(work, loop=loop, **options)


async def end_tasks(tasks: set[Task[Any]], patience_s: float) -> None:
    """Cancel tasks that a run has left, and let them end."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=patience_s)
