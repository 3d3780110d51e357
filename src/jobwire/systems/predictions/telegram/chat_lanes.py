"""Work on updates: of different chats side by side, of one chat in order (P-38).

Used by the poller, which takes new updates meanwhile. A work may let the next one of its chat go on
before it ends: a model runs for minutes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

log: Final = logging.getLogger("jobwire.predictions")

Work = Callable[[Callable[[], None]], Awaitable[None]]
"""The rest of the work on an update; it calls its argument when the next update may go on."""


class ChatLanes:
    """Works of one poller; `group` runs them."""

    def __init__(self, group: asyncio.TaskGroup, most: int) -> None:
        self._group = group
        self._most = most
        self._size = 0
        self._lanes: dict[object, deque[Work]] = {}

    @property
    def is_full(self) -> bool:
        return self._size >= self._most

    def add(self, chat: object, work: Work) -> None:
        """Run a work behind the earlier ones of its chat."""
        self._size += 1
        lane = self._lanes.get(chat)
        if lane is None:
            self._lanes[chat] = deque([work])
            self._group.create_task(self._run_lane(chat))
        else:
            lane.append(work)

    async def _run_lane(self, chat: object) -> None:
        lane = self._lanes[chat]
        while lane:
            passed = asyncio.Event()
            self._group.create_task(self._run(lane.popleft(), passed))
            await passed.wait()
        del self._lanes[chat]

    async def _run(self, work: Work, passed: asyncio.Event) -> None:
        try:
            await work(passed.set)
        except Exception:
            log.exception("update failed here; a recorded photo is continued by reconcile")
        finally:
            self._size -= 1
            passed.set()
