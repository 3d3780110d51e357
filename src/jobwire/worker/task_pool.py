"""A group of tasks with a bounded end.

asyncio's TaskGroup waits for its last task. A handler that swallows its cancellation would keep a
stopping worker alive forever; here it is abandoned and counted. Every task of the worker is in one.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context


class TaskPool:
    """The tasks of one worker."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._context = copy_context()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(
        self, work: Coroutine[object, None, None], name: str = "jobwire worker"
    ) -> "asyncio.Task[None]":
        """Run `work` as a task, in the pool's context: context variables of the current handler do
        not leak into it."""
        task = self._loop.create_task(work, name=name, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def end(self, timeout_s: float) -> int:
        """Cancel all tasks; returns how many have not ended within `timeout_s`."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        return len(self._tasks)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug of ours: every coroutine in the pool handles outside errors itself.
            self._loop.call_exception_handler(
                {"message": f"{task.get_name()} failed", "exception": error, "task": task}
            )
