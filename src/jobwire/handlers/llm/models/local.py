"""A local model for workers without a server: llama.cpp in a child process.

The child serves HTTP on loopback, so requests, responses and cancellation are those of
`endpoint.py`. It starts on first use, runs as long as the worker, and is restarted by the first
call after it has died.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

from jobwire.handlers.llm.models import ChatRequest, Embeddable, Embedded, Piece, Waiting
from jobwire.handlers.llm.models.endpoint import EndpointChat, EndpointEmbedder
from jobwire.handlers.llm.models.errors import ModelError
from jobwire.handlers.llm.models.process import ModelProcess
from jobwire.handlers.llm.models.server import ModelServer
from jobwire.handlers.llm.models.server_main import LoadRequest

_PROCESS_LOST: Final = ("backend_unavailable", "backend_stream_cut")


class Local:
    """A model process, started on first use and restarted after its death."""

    def __init__(self, load_request: Callable[[], LoadRequest]) -> None:
        self._load_request = load_request
        self._process: ModelProcess | None = None

    @asynccontextmanager
    async def server(self) -> AsyncGenerator[ModelServer]:
        """The server of the loaded model, for one call."""
        process = self._process
        if process is None or process.is_gone():
            process = self._process = ModelProcess(self._load_request())
        server = await process.server()
        try:
            yield server
        except ModelError as error:
            if error.code not in _PROCESS_LOST:
                raise
            fix = "the next call starts it again"
            raise await process.lost("while it answered", fix) from error

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
            self._process = None


class LocalChat:
    """A local chat model; serves one request at a time."""

    def __init__(self, local: Local, name: str, *, constrained: bool) -> None:
        self._local = local
        self._name = name
        self._slot = asyncio.Lock()
        self._waiting = 0
        self.constrained = constrained

    async def ask(self, request: ChatRequest) -> AsyncGenerator[Piece, None]:
        """Make one attempt, after the requests before it."""
        if request.model not in ("", self._name):
            raise ModelError(
                "model_not_found", f"this worker has the model {self._name}, not {request.model!r}"
            )
        if self._slot.locked():
            yield Waiting(self._waiting + 1)
        self._waiting += 1
        try:
            await self._slot.acquire()
        finally:
            self._waiting -= 1
        try:
            async with self._local.server() as server:
                yield Waiting(0)
                chat = EndpointChat(server, self._name, is_local=True)
                async with aclosing(chat.ask(request)) as pieces:
                    async for piece in pieces:
                        yield piece
        finally:
            self._slot.release()


class LocalEmbedder:
    """A local embedding model."""

    def __init__(self, local: Local, name: str) -> None:
        self._local = local
        self.name = name

    async def embed(
        self, texts: Sequence[Embeddable], model: str = "", dimensions: int | None = None
    ) -> Embedded:
        """Make one attempt."""
        if dimensions is not None:
            raise ModelError(
                "invalid_payload", f"{self.name} has vectors of one size; leave out `dimensions`"
            )
        if not all(isinstance(each, str) for each in texts):
            raise ModelError(
                "invalid_payload",
                f"{self.name} takes texts, not token numbers of another model; send texts "
                "(LangChain: check_embedding_ctx_length=False)",
            )
        if model not in ("", self.name):
            raise ModelError(
                "model_not_found", f"this worker embeds with {self.name}, not {model!r}"
            )
        async with self._local.server() as server:
            return await EndpointEmbedder(server, self.name).embed(texts)
