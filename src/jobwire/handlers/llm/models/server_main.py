"""A program: llama.cpp with one model, for the worker that started it.

`process.py` starts it, sends a LoadRequest over a socket and waits for the reply, Listening or
LoadRefusal. Then it serves until it is killed, because a clean shutdown of llama.cpp can hang. The
library holds the GIL while it loads and may crash, hence a separate process. Imports are few, for
a quick start.
"""

import os
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

import msgspec

from jobwire.handlers.llm.models.errors import NoModel

_CHAT_BATCH: Final = 128
"""Tokens per batch: a disconnect is detected between two batches."""
_EMBED_TOKENS: Final = 512
"""The context length of the embedding model."""
_OOM_SCORE: Final = "500"
"""Out of memory, the kernel should kill this process before one that holds data."""
END: Final = b"\n"
"""Ends the request and the reply."""


class LoadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which model to load, and its options."""

    name: str
    file: str
    """Empty: the embedding model, converted into `cache_dir` on first use."""
    cache_dir: str = ""
    key: str
    """The API key that the server requires."""
    threads: int
    context_tokens: int = 0

    @property
    def memory_fix(self) -> str:
        """What to do if the machine may have too little memory for it."""
        other = (
            f"set llm.model_path to a smaller model or llm.context_tokens ({self.context_tokens}) "
            "lower"
            if self.file
            else "set llm.embed_base_url to a server"
        )
        return f"give the worker more memory, or {other}"


class Listening(msgspec.Struct, frozen=True, tag=True):
    """The model is loaded and served at `url`."""

    url: str


class LoadRefusal(msgspec.Struct, frozen=True, tag=True):
    """The model cannot be loaded."""

    wrong: str
    fix: str


class _Server(Protocol):
    """The library's server, as far as it is used. It stops when it is garbage collected."""

    listening_address: str


def main() -> None:
    """Load the model, reply, serve."""
    with suppress(OSError):  # only Linux has it
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        try:
            server = _load(_receive_request(channel))
        except NoModel as missing:
            channel.sendall(msgspec.json.encode(LoadRefusal(missing.wrong, missing.fix)) + END)
            sys.exit(1)  # not os._exit: a thread of llama.cpp may not have written the reason yet
        channel.sendall(msgspec.json.encode(Listening(f"{server.listening_address}/v1")) + END)
    while True:
        signal.pause()


def _receive_request(channel: socket.socket) -> LoadRequest:
    received = b""
    while not received.endswith(END):
        if not (more := channel.recv(65536)):
            os._exit(1)  # the worker has exited
        received += more
    return msgspec.json.decode(received, type=LoadRequest)


def _load(request: LoadRequest) -> _Server:
    try:
        if request.file:
            return _server(request, Path(request.file), embeds=False)
        from jobwire.handlers.llm.models import files  # here: a chat model does not need it

        return _server(request, files.embed_file(Path(request.cache_dir)), embeds=True)
    except ImportError as error:
        fix = f"install it again, or {request.memory_fix}"
        raise NoModel(f"xllamacpp cannot be loaded: {error}", fix) from error
    except (RuntimeError, MemoryError, OSError) as error:
        name, reason = Path(request.file).name or request.name, str(error) or type(error).__name__
        fix = f"use another file, or {request.memory_fix}"
        raise NoModel(f"llama.cpp cannot load {name}: {reason}", fix) from error


def _server(request: LoadRequest, file: Path, *, embeds: bool) -> _Server:
    library = import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = str(file)
    params.model_alias = {request.name}  # else responses contain the file name
    # Set both, and few: more threads than free cores are up to thirty times slower.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = request.threads
    params.n_parallel = 1
    params.n_ctx = _EMBED_TOKENS if embeds else request.context_tokens
    params.n_batch = params.n_ubatch = _EMBED_TOKENS if embeds else _CHAT_BATCH
    params.embedding = embeds
    params.cache_ram_mib = 0
    params.n_threads_http = 2
    params.ui = params.endpoint_slots = params.endpoint_props = False
    params.verbosity = 1  # errors only: they are the reason if the load fails
    params.api_keys = [request.key]
    return cast(_Server, library.Server(params))


if __name__ == "__main__":
    main()
