"""One queue of an engine: whether it may have jobs, and until when none may be started.

The engine asks `share_out` which queues get how many slots; the server's answers change states.
"""

import logging
from collections.abc import Sequence
from typing import Final, Protocol, cast

from jobwire.job.engine import MaintenanceResult
from jobwire.systems.queues.announcement import Announcement
from jobwire.systems.queues.codec import (
    BrokenJob,
    BrokenQueue,
    Empty,
    Limited,
    QueueBlocked,
    TakeAnswer,
)
from jobwire.systems.queues.consumer import BullConsumer
from jobwire.systems.queues.contract import Keys
from jobwire.systems.queues.idle_queues import IdleQueue
from jobwire.systems.queues.replies import raises_unavailable
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import ValkeyError

_log = logging.getLogger("jobwire.bullmq")

_PROMOTE_MS: Final = 5_000
"""How often due jobs are looked for while the rate limit is reached."""
_BROKEN_MS: Final = 1_000
"""Between two tries to read a queue that the server refuses to read."""


_MOST_PARTS: Final = 25
"""Where more queues have jobs, so many of them get some at a time, in turn: to start and end four
jobs of one queue costs the server a third less than one job each of four."""


class OnChange(Protocol):
    def __call__(self, error: ValkeyError | None = None, /) -> None: ...


class QueueState:
    def __init__(self, shared: WorkerConnections, name: str, on_change: OnChange) -> None:
        """`on_change` is called when the queue may have a job, or the server does not answer."""
        self.name = name
        self.keys = Keys(name, shared.settings.prefix)
        self.is_ready = False
        """It may have jobs that can be started now."""
        self.held: set[str] = set()
        """Tokens of its running jobs."""
        self.settles = 0
        """How many batches were settled: each may end a block, and writes no marker."""
        self._shared = shared
        self._on_change = on_change
        self._idle = IdleQueue(self.keys, self._has_work, on_change)
        self._is_watched = False
        self._is_blocked = False
        """The last take started nothing since the queue is paused or at its concurrency."""
        self._not_before_ms = 0
        """The queue's rate limit is reached until then."""
        self._promote_ms = 0
        """When delayed jobs are promoted next, while the rate limit is reached."""
        self._consumer: BullConsumer | None = None
        self._announcement: Announcement | None = None

    async def open(self, *, announce: bool) -> None:
        """After the connection was opened."""
        shared = self._shared
        self._consumer = BullConsumer(
            shared.connection,
            self.name,
            shared.settings,
            name=shared.worker_name,
            worker_id=shared.worker_id,
            now_ms=shared.now_ms,
        )
        if announce:
            place = (self.name, shared.settings.prefix, shared.worker_name)
            self._announcement = Announcement(shared.config, *place)
            await self._announcement.open()

    async def close(self) -> None:
        self.unwatch()
        if self._announcement is not None:
            await self._announcement.close()

    @property
    def consumer(self) -> BullConsumer:
        if self._consumer is None:
            raise RuntimeError(f"the engine of the queue {self.name!r} is not registered")
        return self._consumer

    # Whether it may have jobs

    def watch(self) -> None:
        """Find out when it has jobs."""
        if not (self.is_ready or self._is_watched):
            self._is_watched = True
            self._shared.idle.watch(self._idle)

    def unwatch(self) -> None:
        """Leave its markers to other workers; it is looked at before it is watched again."""
        if self._is_watched:
            self._is_watched, self._idle.is_unseen = False, True
            self._shared.idle.forget(self._idle)

    def _has_work(self) -> None:
        self._is_watched = False
        self.is_ready = True
        self._on_change()

    def hold_ms(self, now_ms: int) -> int:
        """For how long none of its jobs may be started."""
        return max(0, self._not_before_ms - now_ms)

    def may_be_asked(self, now_ms: int) -> bool:
        """False while the rate limit is reached and no due job has to be promoted."""
        return now_ms >= min(self._not_before_ms, self._promote_ms)

    def hold(self, wait_ms: int) -> None:
        """Start none of its jobs for that long; due ones are promoted at once."""
        now_ms = self._shared.now_ms()
        self._not_before_ms, self._promote_ms = now_ms + wait_ms, now_ms

    def settled(self) -> None:
        """Jobs of it have ended."""
        self.settles += 1
        if self._is_blocked:
            self.unwatch()
            self._is_blocked = False
            self._has_work()

    def answered(self, answers: Sequence[TakeAnswer], settles: int) -> None:
        """What a take answered, which was sent after so many settles. Without an answer other than
        jobs it may have more."""
        now_ms = self._shared.now_ms()
        self._is_blocked = False
        for answer in answers:
            match answer:
                case Empty(due_ms):
                    self._rest(due_ms or None)
                case Limited(wait_ms, due_ms):
                    self._not_before_ms = now_ms + wait_ms
                    latest_ms = now_ms + _PROMOTE_MS
                    self._promote_ms = min(due_ms or latest_ms, latest_ms)
                    self._rest(min(self._not_before_ms, self._promote_ms), held=True)
                case QueueBlocked():
                    if settles == self.settles:
                        self._is_blocked = True
                        self._rest(None)
                case BrokenQueue(error):
                    _log.error(
                        "a queue cannot be read queue=%(queue)s error=%(error)s; will retry",
                        {"queue": self.name, "error": error},
                    )
                    self._rest(now_ms + _BROKEN_MS, held=True)
                case BrokenJob(error):
                    _log.error(
                        "a job was not started queue=%(queue)s error=%(error)s",
                        {"queue": self.name, "error": error},
                    )
                case _:
                    pass

    def _rest(self, due_ms: int | None, *, held: bool = False) -> None:
        """It has no job before then; `held`: whatever its marker tells."""
        self.is_ready = False
        self._idle.due_ms, self._idle.is_held, self._idle.is_unseen = due_ms, held, False

    async def check_stalled(self) -> MaintenanceResult:
        interval_ms = self._shared.settings.stalled_interval_ms
        with raises_unavailable():
            # A plain command: most often another program, or this one, has just checked.
            left_ms = await self._shared.connection.call("PTTL", self.keys.stalled_check)
            if cast("int", left_ms) > 0:
                return MaintenanceResult(0, guard_s=min(cast("int", left_ms), interval_ms) / 1000)
            moved = await self.consumer.check_stalled()
        if moved:
            _log.warning(
                "stalled jobs requeued queue=%(queue)s jobs=%(jobs)s",
                {"queue": self.name, "jobs": len(moved)},
            )
        return MaintenanceResult(len(moved), guard_s=interval_ms / 1000)


def share_out(
    queues: Sequence[QueueState], limit: int, slots: int, now_ms: int
) -> list[tuple[QueueState, int]]:
    """Which queues are asked for jobs, and how many of each at first: at most an equal part of all
    slots runs jobs of one queue while others have some. What is left goes to any of them."""
    asked = [each for each in queues if each.is_ready and each.may_be_asked(now_ms)]
    asked = asked or [each for each in queues if each.may_be_asked(now_ms)]
    part = max(1, slots // min(_MOST_PARTS, max(1, len(asked))))
    rooms = [(each, max(0, part - len(each.held))) for each in asked]
    # Those that have their part already come last: they get what is left.
    return sorted(rooms, key=lambda room: room[1] == 0)[: max(1, limit)]
