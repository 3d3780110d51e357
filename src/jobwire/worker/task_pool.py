"""A group of tasks that may leave some behind.

A task group waits for its last task, however long that takes. A handler that swallows its
cancellation would so keep a stopping worker alive for ever; here it is left behind and counted.

The worker puts every task of its own in one of these; no task is ever without an owner.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context


class TaskPool:
    """Tasks that belong together."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._context = copy_context()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(
        self, work: Coroutine[object, None, None], name: str = "jobwire worker"
    ) -> "asyncio.Task[None]":
        """Run `work` beside everything else, in our own context: what a handler that happens to
        run now has set in its context is nobody else's."""
        task = self._loop.create_task(work, name=name, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def end(self, patience_s: float) -> int:
        """Cancel all; how many have not ended within `patience_s`."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=patience_s)
        return len(self._tasks)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Ours to repair: every coroutine given to us catches what the world does to it.
            self._loop.call_exception_handler(
                {"message": f"{task.get_name()} broke", "exception": error, "task": task}
            )
