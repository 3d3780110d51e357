"""A model on this machine, for workers without a server: llama.cpp in a process of its own.

It is asked over loopback like any other server: one way of asking, of reading answers, of
stopping. Started when first asked, once, for the life of the worker; and anew by the first
question after it has died.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

from jobwire.handlers.llm.models import ChatRequest, Embedded, Piece
from jobwire.handlers.llm.models.endpoint import EndpointChat, EndpointEmbedder
from jobwire.handlers.llm.models.errors import ModelError
from jobwire.handlers.llm.models.process import ModelProcess
from jobwire.handlers.llm.models.server import ModelServer
from jobwire.handlers.llm.models.server_main import LoadRequest

_BROKEN_OFF: Final = ("backend_unavailable", "backend_stream_cut")


class Local:
    """A model that is loaded when first asked, and then stays."""

    def __init__(self, look: Callable[[], LoadRequest]) -> None:
        self._look = look
        self._process: ModelProcess | None = None

    @asynccontextmanager
    async def server(self) -> AsyncGenerator[ModelServer]:
        """Where it is asked, for one question."""
        process = self._process
        if process is None or process.is_gone():
            process = self._process = ModelProcess(self._look())
        server = await process.server()
        try:
            yield server
        except ModelError as trouble:
            if trouble.code not in _BROKEN_OFF:
                raise
            next_time = "the next question starts it again"
            raise await process.lost("in the middle of an answer", next_time) from trouble

    def close(self) -> None:
        """Unload it."""
        if self._process is not None:
            self._process.close()
            self._process = None


class LocalChat:
    """A model that answers questions, one after the other."""

    def __init__(self, local: Local, name: str, *, led: bool) -> None:
        self._local = local
        self._name = name
        self._turn = asyncio.Semaphore(1)
        self.led = led

    async def ask(self, ask: ChatRequest) -> AsyncGenerator[Piece, None]:
        """One try, when it is its turn."""
        if ask.model not in ("", self._name):
            raise ModelError(
                "model_not_found", f"this worker has the model {self._name}, not {ask.model!r}"
            )
        async with self._turn, self._local.server() as server:
            chat = EndpointChat(server, self._name, is_ours=True)
            async with aclosing(chat.ask(ask)) as pieces:
                async for piece in pieces:
                    yield piece


class LocalEmbedder:
    """A model that turns texts into vectors."""

    def __init__(self, local: Local, name: str) -> None:
        self._local = local
        self.name = name

    async def embed(self, texts: Sequence[str], model: str = "") -> Embedded:
        """One try."""
        if model not in ("", self.name):
            raise ModelError(
                "model_not_found", f"this worker embeds with {self.name}, not {model!r}"
            )
        async with self._local.server() as server:
            return await EndpointEmbedder(server, self.name).embed(texts)
