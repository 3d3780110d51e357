"""A TCP server of a few lines, for tests that say byte by byte what it does."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Final, Self

from jobwire.local.ports import LOOPBACK

_JOIN_S: Final = 30.0


class Listening:
    """Accepts connections in a thread and calls `serve` for each, in a thread of its own.

    Each socket is closed by the thread that waits at it, which the end of the block only wakes: if
    another thread closed it, its number could be that of another test's socket before the first one
    reads from it.
    """

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._socket = socket.create_server((LOOPBACK, 0))
        self.port: int = self._socket.getsockname()[1]
        self.open: set[socket.socket] = set()
        self._closing = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with self._socket:
            while True:
                peer, _ = self._socket.accept()
                if self._closing:
                    peer.close()
                    return
                self.open.add(peer)
                self._threads.append(threading.Thread(target=self._answer, args=(peer,)))
                self._threads[-1].start()

    def _answer(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            self._serve(peer)
        self.open.discard(peer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        socket.create_connection((LOOPBACK, self.port)).close()
        self._threads[0].join(_JOIN_S)
        for peer in tuple(self.open):
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_JOIN_S)
            assert not thread.is_alive(), "the server did not end"
