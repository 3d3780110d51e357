"""A program: llama.cpp with one model, for the worker that started it.

`process.py` starts it, hands it a Wish over a socket and waits for its one word, a Listening or a
Refusal. Then it serves until it is killed, which is the only way it ends: llama.cpp can take for
ever to say goodbye. The library keeps Python's lock while it loads, and may crash; here that stops
nobody else. Nothing is imported that is not needed, to be quick.
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
"""Tokens read at a time: a cancel is noticed in between."""
_EMBED_TOKENS: Final = 512
"""The longest text that the embedding model can take."""
_FIRST_TO_GO: Final = "500"
"""Where memory runs out the system should end this program, and not one that keeps data."""
END: Final = b"\n"
"""Of the wish, and of the answer to it."""


class LoadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which model to load, and how."""

    name: str
    file: str
    """Empty: the model that makes vectors, converted into `cache_dir` where it is not yet."""
    cache_dir: str = ""
    key: str
    """Who does not have it gets no answer."""
    threads: int
    context_tokens: int = 0


class Listening(msgspec.Struct, frozen=True, tag=True):
    """The model is loaded; here it is asked."""

    url: str


class LoadRefusal(msgspec.Struct, frozen=True, tag=True):
    """There will be no model: what is wrong, and what to do."""

    wrong: str
    cure: str


class _Server(Protocol):
    """What we use of the library's server. It ends when nobody holds it any more."""

    listening_address: str


def main() -> None:
    """Load, say so, serve."""
    with suppress(OSError):  # only Linux has it
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
    with socket.socket(fileno=int(sys.argv[1])) as line:
        try:
            server = _load(_wish(line))
        except NoModel as missing:
            line.sendall(msgspec.json.encode(LoadRefusal(missing.wrong, missing.cure)) + END)
            os._exit(1)
        line.sendall(msgspec.json.encode(Listening(f"{server.listening_address}/v1")) + END)
    while True:
        signal.pause()


def _wish(line: socket.socket) -> LoadRequest:
    heard = b""
    while not heard.endswith(END):
        if not (more := line.recv(65536)):
            os._exit(1)  # nobody is there any more
        heard += more
    return msgspec.json.decode(heard, type=LoadRequest)


def _load(wish: LoadRequest) -> _Server:
    if wish.file:
        file = Path(wish.file)
    else:
        from jobwire.handlers.llm.models import files  # late: it brings the converter

        file = files.embed_file(Path(wish.cache_dir))
    try:
        return _server(wish, file, embeds=not wish.file)
    except ImportError as error:
        raise NoModel(f"xllamacpp cannot be loaded: {error}", "install it again") from error
    except (RuntimeError, MemoryError) as error:
        reason = str(error) or "there is not enough memory"
        raise NoModel(f"llama.cpp cannot load {file.name}: {reason}", "use another file") from error


def _server(wish: LoadRequest, file: Path, *, embeds: bool) -> _Server:
    library = import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = str(file)
    params.model_alias = {wish.name}  # or answers would name the file
    # Both, and few: threads that wait for a busy core make it thirty times slower.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = wish.threads
    params.n_parallel = 1
    params.n_ctx = _EMBED_TOKENS if embeds else wish.context_tokens
    params.n_batch = params.n_ubatch = _EMBED_TOKENS if embeds else _CHAT_BATCH
    params.embedding = embeds
    params.cache_ram_mib = 0
    params.n_threads_http = 2
    params.ui = params.endpoint_slots = params.endpoint_props = False
    params.verbosity = 1  # errors alone: they are the reason, where it fails
    params.api_keys = [wish.key]
    return cast(_Server, library.Server(params))


if __name__ == "__main__":
    main()
