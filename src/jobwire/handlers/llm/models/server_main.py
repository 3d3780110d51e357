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
    if request.file:
        file = Path(request.file)
    else:
        from jobwire.handlers.llm.models import (
            files,
        )  # imported here: a chat model does not need it

        file = files.embed_file(Path(request.cache_dir))
    try:
        return _server(request, file, embeds=not request.file)
    except ImportError as error:
        raise NoModel(f"xllamacpp cannot be loaded: {error}", "install it again") from error
    except (RuntimeError, MemoryError) as error:
        reason = str(error) or "there is not enough memory"
        raise NoModel(f"llama.cpp cannot load {file.name}: {reason}", "use another file") from error


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
