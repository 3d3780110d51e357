"""`python -m tests.interop.openai_clients [python|npm]`: real clients of OpenAI's API at the front.

Installs pinned versions of them into the tests' cache, in environments of their own, starts a
gateway and a worker whose model server is scripted, and prints a line per client and feature. Not
part of the suite: the packages take minutes to install. Exits with 1 if a feature does not work.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from jobwire.handlers.llm import LlmSettings, register
from jobwire.local import LocalValkey
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from jobwire.worker import App, Worker
from tests.handlers.llm.upstream import DONE, USAGE, Act, Stage, delta, event, says, streams
from tests.support.jobs_http import ServedJobs
from tests.support.thirdparty import NODE, cache_folder, npm_packages
from tests.support.workers import started, stopped

PACKAGES: Final = (
    "openai==2.54.0",
    "langchain-openai==1.7.3",
    "llama-index-llms-openai==0.8.3",
    "litellm==1.106.2",
    "instructor==1.17.0",
    "pydantic-ai-slim[openai]==2.31.1",
    "openai-agents==0.20.0",
    "llm==0.32",
)
NPM_PACKAGES: Final = (
    "openai@6.49.0",
    "ai@6.0.326",
    "@ai-sdk/openai-compatible@2.0.87",
    "zod@4.6.7",
)
_HERE: Final = Path(__file__).parent
_CALL: Final = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}
_CALLS: Final = streams(
    event({"choices": [{"delta": {"tool_calls": [_CALL]}}]}),
    delta("", "tool_calls"),
    USAGE,
    DONE,
)
ACTS: Final[dict[str, list[Act]]] = {
    "good": [says("Hello ", "there")],
    "json": [says('{"a": 1}')],
    "thinks": [says("<think>Hm.</think>Hello there")],
    "calls": [_CALLS],
    # Call a function, and answer with its result in the history.
    **{f"calls-once-{name}": [_CALLS, says("Hello there")] for name in ("agent", "agents", "llm")},
}


def python() -> list[str]:
    """The Python clients in an environment of theirs, made once."""
    digest = hashlib.sha256("\n".join(PACKAGES).encode()).hexdigest()[:16]
    folder = cache_folder() / f"openai-clients-{digest}"
    program = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([program, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        (folder / "complete").touch()
    return [str(program), str(_HERE / "python" / "openai_clients.py")]


def npm() -> list[str]:
    """The npm clients; a module finds packages beside itself only, so the script is copied."""
    script = npm_packages("openai-clients-npm", NPM_PACKAGES) / "openai_clients.mjs"
    shutil.copy(_HERE / "node" / script.name, script)
    return [str(NODE), str(script)]


CLIENTS: Final = {"python": python, "npm": npm}


async def run(command: Sequence[str], url: str) -> list[tuple[str, str]]:
    """What each feature of each client does at this address."""
    process = await asyncio.create_subprocess_exec(*(*command, url), stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    rows: list[Any] = [json.loads(line) for line in output.splitlines() if line.startswith(b"[")]
    return [(name, found) for name, found in rows]


async def main(chosen: Sequence[str]) -> int:
    commands = [CLIENTS[name]() for name in chosen or CLIENTS]
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalValkey(Path(folder)) as valkey,
        ServedJobs(valkey.url) as served,
    ):
        async with Connection.open(valkey.url) as connection, Stage(ACTS) as stage:
            app = App()
            register(app, LlmSettings(base_url=stage.url, model="good", embed_model="vectors"))
            worker = Worker(app, [StreamsEngine(connection, StreamsSettings())])
            running = await started(worker)
            try:
                found = [
                    row for command in commands for row in await run(command, f"{served.url}/v1")
                ]
            finally:
                await stopped(worker, running)
    for name, state in found:
        print(f"{name:24} {state}")
    return 0 if found and all(state == "works" for _, state in found) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
