"""`python -m tests.interop.model_servers [NAME]`: the six tasks on real model servers.

Each server runs apart, with the small chat model of the local driver, and is used as any
OpenAI-compatible endpoint. llama.cpp's own comes with the installed library; llama-cpp-python is
compiled into the tests' cache, for at most five minutes. Prints a line per server and task: whether
it ended well, or with one of the documented codes, which a small model may earn. Not part of the
suite. Exits with 1 if a task ended in another way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Final

import httpx

from jobwire import App
from jobwire.handlers.llm import LlmSettings
from jobwire.handlers.llm.models import files
from jobwire.job.errors import Fail
from jobwire.local import free_port
from tests.handlers.llm.recorder import Bench
from tests.support.program import Program
from tests.support.thirdparty import cache_folder
from tests.support.wait import wait_until_sync

PACKAGE: Final = "llama-cpp-python[server]==0.3.36"
_BUILD_S: Final = 300
_LLAMA: Final = Path(__file__).parents[1] / "handlers" / "llm" / "llama_server.py"
_SMALL: Final = ("output_invalid", "output_truncated", "tool_no_match", "tool_bad_arguments")
"""What a model of 135 million parameters may get wrong."""
_WITHOUT_USAGE: Final = ("llama-cpp-python",)
"""Servers whose streams have none, whatever `stream_options` says."""
_FACTS: Final = ["The warranty of the P-101 lasts 24 months.", "The pump is serviced in May."]
PAYLOADS: Final[dict[str, dict[str, object]]] = {
    "chat": {"prompt": "Say hello.", "max_tokens": 20},
    "plan": {"goal": "Clean the kitchen", "max_steps": 3, "max_tokens": 200},
    "code": {"prompt": "is_even(n)", "max_tokens": 120},
    "tool": {"prompt": "What is 17 plus 25?", "run": False, "max_tokens": 60},
    "rag": {"question": "How long is the warranty?", "documents": _FACTS, "max_tokens": 60},
    "embed": {"input": ["a", "b"]},
}


class Skipped(Exception):
    """The server cannot be had here; the message has the reason."""


@contextlib.contextmanager
def llama_cpp(folder: Path) -> Generator[LlmSettings]:
    key = secrets.token_hex(8)
    with Program(_LLAMA, str(folder), key) as program:
        chat, embed = program.wait_for_line("listening", timeout_s=60).split()[1:]
        yield LlmSettings(
            base_url=f"{chat}/v1",
            api_key=key,
            embed_api_key=key,
            model="smollm2",
            embed_base_url=f"{embed}/v1",
            embed_model="minilm",
            cache_dir=folder,
        )


@contextlib.contextmanager
def llama_cpp_python(folder: Path) -> Generator[LlmSettings]:
    home = cache_folder() / "llama-cpp-python"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        venv.create(home, with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "--quiet", PACKAGE]
        try:
            subprocess.run(install, check=True, timeout=_BUILD_S, capture_output=True)
        except subprocess.TimeoutExpired:
            raise Skipped(f"not compiled within {_BUILD_S} s") from None
        except subprocess.CalledProcessError as error:
            raise Skipped(error.stderr.decode()[-300:]) from None
        (home / "complete").touch()
    port = free_port()
    options = ["--model", str(files.chat_file()), "--model_alias", "smollm2", "--n_ctx", "2048"]
    command = [python, "-m", "llama_cpp.server", "--port", str(port), "--n_threads", "1", *options]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "HOST": ""})
    try:
        url = f"http://127.0.0.1:{port}/v1"

        def answers() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"{url}/models", trust_env=False).is_success
            return False

        wait_until_sync(answers, "the server to answer", timeout_s=60)
        # The vectors are the local driver's: this server has one model.
        yield LlmSettings(base_url=url, model="smollm2", cache_dir=folder)
    finally:
        server.terminate()
        server.wait(10)


SERVERS: Final[dict[str, Callable[[Path], contextlib.AbstractContextManager[LlmSettings]]]] = {
    "llama.cpp": llama_cpp,
    "llama-cpp-python": llama_cpp_python,
}


async def ended(settings: LlmSettings, no_usage: str) -> list[tuple[str, str]]:
    """How each task ended; `no_usage` is the word for an answer without a count of its tokens."""
    app = App("servers")

    @app.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    bench, found = Bench(settings, app), list[tuple[str, str]]()
    try:
        for task, payload in PAYLOADS.items():
            try:
                sampling = {} if task == "embed" else {"temperature": 0}
                result = (await bench.run(task, {**payload, **sampling})).result
                has_usage = task in ("plan", "tool", "rag") or result["usage"]
                state = "ends" if has_usage else no_usage
            except Fail as error:
                state = f"ends: {error.code}" if error.code in _SMALL else f"fails: {error!r}"
            except Exception as error:  # noqa: BLE001 - the table has it
                state = f"fails: {error!r}"[:300]
            found.append((task, state))
    finally:
        bench.models.close()
    return found


def main(chosen: Sequence[str]) -> int:
    rows: list[tuple[str, str, str]] = []
    for name in chosen or SERVERS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                with SERVERS[name](Path(folder)) as settings:
                    no_usage = "ends, no usage" if name in _WITHOUT_USAGE else "fails: no usage"
                    rows += [(name, *row) for row in asyncio.run(ended(settings, no_usage))]
            except Skipped as reason:
                print(f"{name:18} skipped: {reason}")
    for server, task, state in rows:
        print(f"{server:18} {task:6} {state}")
    return 0 if rows and all(state.startswith("ends") for *_, state in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
