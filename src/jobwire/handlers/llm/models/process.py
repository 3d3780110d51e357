"""The worker's side of `server_main.py`: one model in a child process.

Used by `local.py`. A failure of the process is raised as ModelError. The process never outlives the
worker; its output appears in the worker's log, in one line, when it has failed.
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
from jobwire.handlers.llm.models.errors import ModelError, NoModel, RetryLimit
from jobwire.handlers.llm.models.server import ModelServer
from jobwire.handlers.llm.models.server_main import Listening, LoadRefusal, LoadRequest
from jobwire.spawn import how_ended, spawn

_log: Final = logging.getLogger("jobwire.handlers")
_NO_TIMEOUT_S: Final = 3600.0
"""The death of the process is detected, and the answer has its own time limit."""
_EXIT_TIMEOUT_S: Final = 10.0
"""For a process that has closed its connection or refused to load."""
_OUTPUT_TAIL_BYTES: Final = 4096
"""Enough for the cause of a failed load or the last lines of a crash."""
_decode: Final = msgspec.json.Decoder(Listening | LoadRefusal).decode


class ModelProcess:
    """A model process that may die at any time. Used on the event loop only."""

    def __init__(self, request: LoadRequest) -> None:
        self._request = request
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._channel, child_channel = socket.socketpair()
        self._channel.setblocking(False)
        with child_channel:
            try:
                self._child = spawn(
                    [sys.executable, "-P", "-m", server_main.__name__, str(child_channel.fileno())],
                    # The same import path as the worker; no debugger after a crash.
                    env={**os.environ, "PYTHONPATH": _search_path(), "GGML_NO_BACKTRACE": "1"},
                    stdout=self._output,
                    stderr=self._output,
                    keep_fds=[child_channel.fileno()],
                    last_signal=signal.SIGKILL,
                )
            except OSError as error:
                self._output.close()
                self._channel.close()
                wrong = f"the local model {request.name} cannot be started: {error}"
                raise _unavailable(wrong, request.memory_fix) from error
        with suppress(OSError):  # it has exited already: server() reports that
            self._channel.send(msgspec.json.encode(request) + server_main.END)
        self._received = b""
        self._reply: Listening | LoadRefusal | None = None
        self._is_channel_closed = False
        self._load_lock = asyncio.Lock()
        self._is_closed = False

    async def server(self) -> ModelServer:
        """Wait until the model is loaded. All waiters get the same result; a canceled waiter does
        not stop the load."""
        if self._reply is None:
            async with self._load_lock:
                await self._receive_reply()
        match self._reply:
            case Listening(url):
                key = self._request.key
                return ModelServer(
                    base_url=url, api_key=key, first_s=_NO_TIMEOUT_S, idle_s=_NO_TIMEOUT_S
                )
            case LoadRefusal(wrong, fix):
                await self._wait_ended()
                raise NoModel(wrong, fix)
            case None:
                raise await self.lost("while it was loaded", self._request.memory_fix)

    async def _receive_reply(self) -> None:
        loop = asyncio.get_running_loop()
        while self._reply is None and not self._is_channel_closed:
            try:
                more = await loop.sock_recv(self._channel, 65536)
            except OSError:
                more = b""
            self._received += more
            if self._received.endswith(server_main.END):
                self._reply = _decode(self._received)
            self._is_channel_closed = not more
        self._channel.close()

    def is_gone(self) -> bool:
        """Whether the process has ended. Logs the reason once."""
        code = self._child.exit_code()
        if code is not None and not self._is_closed:
            _log.warning(
                "local model process ended model=%(model)s reason=%(reason)s output=%(output)s; "
                "the next call starts it",
                {
                    "model": self._request.name,
                    "reason": how_ended(code),
                    "output": self._output_tail(),
                },
            )
            self.close()
        return code is not None

    async def lost(self, when: str, fix: str) -> ModelError:
        """The error for a process that closed its connection; ends the process if it still runs."""
        reason = how_ended(await self._wait_ended())
        return _unavailable(f"the local model {self._request.name} {reason} {when}", fix)

    async def _wait_ended(self) -> int | None:
        """The exit code; None if the process had to be killed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_TIMEOUT_S):
                while not self.is_gone():  # its sockets close first
                    await asyncio.sleep(0.01)
        code = self._child.exit_code()
        self.close()
        return code

    def close(self) -> None:
        """Kill the process."""
        self._is_closed = True
        self._child.kill()
        self._output.close()
        if not self._load_lock.locked():  # else the waiter closes it
            self._channel.close()

    def _output_tail(self) -> str:
        self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - _OUTPUT_TAIL_BYTES))
        return " ".join(self._output.read().decode("utf-8", "replace").split())


def _unavailable(wrong: str, fix: str) -> ModelError:
    return ModelError("backend_unavailable", wrong, RetryLimit.ONCE, fix=fix)


def _search_path() -> str:
    return os.pathsep.join(path for path in sys.path if path)
