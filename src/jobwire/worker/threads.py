"""Threads for handlers that block.

Not the standard library's pool: the interpreter waits for its threads at exit, so a handler that
never returns would keep a stopping worker alive. These threads die with the process. They are
reused, so there are about as many as ever ran at the same time.
"""

import queue
import threading
from collections.abc import Callable

Work = Callable[[], None]


class Threads:
    """A pool without a limit of its own: each caller holds a slot."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._idle = 0
        self._count = 0
        self._lock = threading.Lock()

    def start(self, work: Work) -> None:
        """Run `work`, which must not raise, in its own thread at once; RuntimeError if there can be
        no more threads."""
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                name = f"jobwire-handler-{self._count + 1}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
                self._count += 1
        self._work.put(work)

    def close(self) -> None:
        """End idle threads now, and busy ones after their work."""
        with self._lock:
            for _ in range(self._count):
                self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            with self._lock:
                self._idle += 1
