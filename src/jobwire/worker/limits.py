"""The limits of single handlers: how many of their jobs run at a time in one worker.

A job whose handler is at its limit is not taken: it waits on the server, where everyone sees that
it waits and other workers can take it. So every call that may bring jobs says beforehand how many
of which task there is room for. A take reserves the room until its answer has come; a wait, which
may last, only offers it. A job that comes all the same (the room was offered twice, or an orphan
was found) does not begin, and goes back.
"""

from collections.abc import Callable, Mapping
from typing import Final

from jobwire.job.engine import Room
from jobwire.worker.app import Handler, Routes

Reserved = Mapping["HandlerLimit", int]
NOTHING: Final[Reserved] = {}


class HandlerLimit:
    """How many more jobs of one handler may begin in this worker; shared by all its queues."""

    __slots__ = ("_refused", "_shares", "free")

    def __init__(self, concurrency: int) -> None:
        self.free = concurrency
        self._shares: list[Callable[[], None]] = []
        self._refused: set[Callable[[], None]] = set()

    def join(self, notify: Callable[[], None]) -> None:
        """`notify` is called when there is room again."""
        self._shares.append(notify)

    def reserve(self, notify: Callable[[], None]) -> int:
        count, self.free = self.free, 0
        if not count:
            self._refused.add(notify)
        return count

    def give_back(self, count: int) -> None:
        """What was reserved, before the jobs that came are admitted."""
        self.free += count

    def admit(self) -> bool:
        """Whether a job may begin."""
        if not self.free:
            return False
        self.free -= 1
        return True

    def ended(self) -> None:
        """A job's code has ended: whichever queue has one may start it."""
        self.free += 1
        for notify in self._shares:
            notify()

    def notify_refused(self) -> None:
        """Room that was reserved was not needed: those that found none ask again."""
        if self.free and self._refused:
            refused, self._refused = self._refused, set()
            for notify in refused:
                notify()


class HandlerLimits:
    """The limits of all handlers of a worker."""

    def __init__(self) -> None:
        self._limits: dict[tuple[str, str, str], HandlerLimit] = {}

    def of(self, handler: Handler) -> HandlerLimit | None:
        """The handler's limit, if it has one."""
        if handler.concurrency is None:
            return None
        place = handler.wire, handler.queue, handler.task  # what it was registered for
        return self._limits.setdefault(place, HandlerLimit(handler.concurrency))


class LoopLimits:
    """The limits of the handlers of one queue loop."""

    def __init__(
        self, limits: HandlerLimits, routes: Mapping[str, Routes], notify: Callable[[], None]
    ) -> None:
        self._notify = notify
        self._tasks: list[tuple[str, HandlerLimit]] = []
        self._queues: dict[str, set[HandlerLimit]] = {}
        """Queues whose handlers are all limited."""
        for queue, own in routes.items():
            found = [(handler.task, limits.of(handler)) for handler in own.all]
            of_queue = [(task, limit) for task, limit in found if limit is not None]
            self._tasks += [each for each in of_queue if each not in self._tasks]
            if 0 < len(of_queue) == len(found):
                self._queues[queue] = {limit for _, limit in of_queue}
        self._all = list(dict.fromkeys(limit for _, limit in self._tasks))
        for limit in self._all:
            limit.join(notify)
        self._closed: list[HandlerLimit] = []
        """Those without room when the last wait was sent."""

    def __bool__(self) -> bool:
        return bool(self._all)

    def reserve(self) -> tuple[Room, Reserved]:
        """All room, for a call."""
        reserved = {limit: limit.reserve(self._notify) for limit in self._all}
        return self._room(reserved), reserved

    def offer(self) -> Room:
        """All room, for a wait."""
        free = {limit: limit.free for limit in self._all}
        self._closed = [limit for limit in self._all if not limit.free]
        return self._room(free)

    def _room(self, free: Reserved) -> Room:
        tasks: dict[str, int] = {}
        for task, limit in self._tasks:  # queues may have different handlers of a task
            tasks[task] = min(free[limit], tasks.get(task, free[limit]))
        queues = {name: sum(free[limit] for limit in own) for name, own in self._queues.items()}
        return Room(tasks, queues)

    def answered(self) -> bool:
        """The jobs of a call were admitted. Whether the wait in progress leaves out
        jobs for which there is room now."""
        for limit in self._all:
            limit.notify_refused()
        if any(limit.free for limit in self._closed):
            self._closed = []
            return True
        return False
