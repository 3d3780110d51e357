"""llama.cpp inside this process, for models without a server of their own.

Its library always listens as well, so we ask it over loopback like any other server: one way of
asking, of reading answers, of stopping. Started once, when first needed, for the life of the
process; never before a fork, which its threads would not survive.
"""

import asyncio
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, closing
from http.client import HTTPConnection
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

from jobwire.handlers.llm.models import Ask, Embedded, Piece, files
from jobwire.handlers.llm.models.endpoint import EndpointChat, EndpointEmbedder
from jobwire.handlers.llm.models.server import Server
from jobwire.handlers.llm.models.trouble import NoModel, Trouble

_CHAT_BATCH: Final = 128
"""Tokens read at a time: a cancel is noticed in between."""
_EMBED_TOKENS: Final = 512
"""The longest text that the embedding model can take."""
_PATIENCE_S: Final = 3600.0
"""A model in our own process does not get lost; the answer's own limit holds."""


class _Listening(Protocol):
    """What we use of the library's server. It ends when nobody holds it any more."""

    listening_address: str


def load(
    file: Path, name: str, *, threads: int, context_tokens: int, embeds: bool = False
) -> tuple[_Listening, Server]:
    """Load a model: it listens on loopback only, with a key that only we know."""
    files.find_library("llm.embed_model" if embeds else files.OTHERWISE)
    library = import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = str(file)
    params.model_alias = {name}  # or answers would name the file
    # Both, and few: threads that wait for a busy core make it thirty times slower.
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.n_parallel = 1
    params.n_ctx = _EMBED_TOKENS if embeds else context_tokens
    params.n_batch = params.n_ubatch = _EMBED_TOKENS if embeds else _CHAT_BATCH
    params.embedding = embeds
    params.cache_ram_mib = 0
    params.n_threads_http = 2
    params.ui = params.endpoint_slots = params.endpoint_props = False
    params.verbosity = -1
    key = secrets.token_hex(32)
    params.api_keys = [key]
    try:
        listening = cast(_Listening, library.Server(params))
    except RuntimeError as error:
        raise NoModel(f"llama.cpp cannot load {file.name}: {error}", "use another file") from error
    _wait_until_it_works(listening, key)
    url = f"{listening.listening_address}/v1"
    return listening, Server(base_url=url, api_key=key, first_s=_PATIENCE_S, idle_s=_PATIENCE_S)


def _wait_until_it_works(listening: _Listening, key: str) -> None:
    """Ask for something small that is answered where the model runs. One that is let go of before
    that thread is at work never hears of it, and its destructor waits for the thread for ever."""
    asked = HTTPConnection(listening.listening_address.removeprefix("http://"))
    with closing(asked):
        asked.request("GET", "/lora-adapters", headers={"Authorization": f"Bearer {key}"})
        asked.getresponse()


class Local:
    """A model that is loaded when first asked, and then stays."""

    def __init__(self, start: Callable[[], tuple[_Listening, Server]]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._running: tuple[_Listening, Server] | None = None

    async def server(self) -> Server:
        """Where it listens."""
        running = self._running
        if running is None:
            running = await asyncio.to_thread(self._once)
        return running[1]

    def _once(self) -> tuple[_Listening, Server]:
        with self._lock:
            if self._running is None:
                self._running = self._start()
            return self._running


class LocalChat:
    """A model that answers questions, one after the other."""

    def __init__(self, local: Local, name: str, *, led: bool) -> None:
        self._local = local
        self._name = name
        self._turn = asyncio.Semaphore(1)
        self.led = led

    async def ask(self, ask: Ask) -> AsyncGenerator[Piece, None]:
        """One try, when it is its turn."""
        if ask.model not in ("", self._name):
            raise Trouble(
                "model_not_found", f"this worker has the model {self._name}, not {ask.model!r}"
            )
        server = await self._local.server()
        chat = EndpointChat(server, self._name, is_ours=True)
        async with self._turn, aclosing(chat.ask(ask)) as pieces:
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
            raise Trouble("model_not_found", f"this worker embeds with {self.name}, not {model!r}")
        return await EndpointEmbedder(await self._local.server(), self.name).embed(texts)
