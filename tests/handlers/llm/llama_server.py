"""`llama_server.py <cache dir> <key>`: llama.cpp's own OpenAI-compatible server, as a program.

A chat model on one port, an embedding model on another. Ends with SIGTERM.
"""

import os
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from jobwire.handlers.llm.models import files


def serve(file: Path, name: str, key: str, *, embedding: bool) -> Any:
    xllamacpp = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.model_alias = {name}
    params.api_keys = [key]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_parallel = 1
    params.n_ctx = 512 if embedding else 2048
    params.n_batch = params.n_ubatch = 512 if embedding else 128
    params.embedding = embedding
    params.cache_prompt = False  # the same output, whatever was requested before
    params.ui = False
    params.verbosity = -1
    return xllamacpp.Server(params)


if __name__ == "__main__":
    os.nice(10)
    cache, key = sys.argv[1:]
    chat = serve(files.chat_file(), "smollm2", key, embedding=False)
    embed = serve(files.embed_file(Path(cache)), "minilm", key, embedding=True)
    print("listening", chat.listening_address, embed.listening_address, flush=True)
    threading.Event().wait()
