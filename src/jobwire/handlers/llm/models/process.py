"""The worker's side of `server_main.py`: one model in a process of its own.

Used by `local.py`. Whatever becomes of the process is told as Trouble. It never outlives the
worker, and what it writes reaches the worker's log alone, in one line, when it has failed.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from typing import Final

import msgspec

from jobwire.handlers.llm.models import server_main
from jobwire.handlers.llm.models.errors import Again, ModelError, NoModel
from jobwire.handlers.llm.models.server import ModelServer
from jobwire.handlers.llm.models.server_main import Listening, LoadRefusal, LoadRequest
from jobwire.spawn import spawn

_log: Final = logging.getLogger("jobwire.handlers")
_PATIENCE_S: Final = 3600.0
"""A process of our own does not get lost unnoticed; the answer's own limit holds."""
_ENDING_S: Final = 2.0
"""How long a process that has broken off may take to be gone."""
_LAST_WORDS: Final = 4096
"""Bytes: all of a load that failed, the last lines of a crash."""
_decode: Final = msgspec.json.Decoder(Listening | LoadRefusal).decode


class ModelProcess:
    """A model that is loaded, then asked, and may die at any time. Used on the event loop."""

    def __init__(self, wish: LoadRequest) -> None:
        self._wish = wish
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as we do
        self._line, theirs = socket.socketpair()
        self._line.setblocking(False)
        with theirs:
            self._child = spawn(
                [sys.executable, "-P", "-m", server_main.__name__, str(theirs.fileno())],
                # What we can import it can; and where it crashes, it does so without a debugger.
                env={**os.environ, "PYTHONPATH": _search_path(), "GGML_NO_BACKTRACE": "1"},
                stdout=self._noise,
                stderr=self._noise,
                keep_fds=[theirs.fileno()],
                last_signal=signal.SIGKILL,
            )
        with suppress(OSError):  # it is gone already, as whoever waits for it will see
            self._line.send(msgspec.json.encode(wish) + server_main.END)
        self._heard = b""
        self._said: Listening | LoadRefusal | None = None
        self._is_silent = False
        """It ended without a word."""
        self._waiting = asyncio.Lock()
        self._is_closed = False

    async def server(self) -> ModelServer:
        """Where to ask it, once it is loaded. All who wait are told the same, and who waits no
        longer stops nothing."""
        if self._said is None:
            async with self._waiting:
                await self._listen()
        match self._said:
            case Listening(url):
                key = self._wish.key
                return ModelServer(
                    base_url=url, api_key=key, first_s=_PATIENCE_S, idle_s=_PATIENCE_S
                )
            case LoadRefusal(wrong, cure):
                await self._ended()
                raise NoModel(wrong, cure)
            case None:
                raise await self.lost("while it was loaded", "is there enough memory for it?")

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        while self._said is None and not self._is_silent:
            try:
                more = await loop.sock_recv(self._line, 65536)
            except OSError:
                more = b""
            self._heard += more
            if self._heard.endswith(server_main.END):
                self._said = _decode(self._heard)
            self._is_silent = not more
        self._line.close()

    def is_gone(self) -> bool:
        """Whether it has ended. The log says how, once."""
        code = self._child.exit_code()
        if code is not None and not self._is_closed:
            _log.warning("the local model %s %s%s", self._wish.name, _how(code), self._last_words())
            self.close()
        return code is not None

    async def lost(self, when: str, cure: str) -> ModelError:
        """What to say of a process that has broken off; it is ended, if it has not yet."""
        how = _how(await self._ended())
        wrong = f"the local model {self._wish.name} {how} {when}"
        return ModelError("backend_unavailable", wrong, Again.ONCE, cure=cure)

    async def _ended(self) -> int | None:
        """Its exit code; None where it did not end by itself."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ENDING_S):
                while not self.is_gone():  # its sockets close a moment before
                    await asyncio.sleep(0.01)
        code = self._child.exit_code()
        self.close()
        return code

    def close(self) -> None:
        """End it now."""
        self._is_closed = True
        self._child.kill()
        self._noise.close()
        if not self._waiting.locked():  # who waits sees the end, and closes it
            self._line.close()

    def _last_words(self) -> str:
        self._noise.seek(max(0, self._noise.seek(0, os.SEEK_END) - _LAST_WORDS))
        words = " ".join(self._noise.read().decode("utf-8", "replace").split())
        return f"; it wrote: {words}" if words else ""


def _how(code: int | None) -> str:
    """What an exit code says to people."""
    if code is None:
        return "broke off"
    if code == -signal.SIGKILL:
        return "was killed"
    return f"crashed ({signal.Signals(-code).name})" if code < 0 else f"ended (exit code {code})"


def _search_path() -> str:
    return os.pathsep.join(path for path in sys.path if path)
