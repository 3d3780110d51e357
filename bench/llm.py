"""The local model behind `jobwire up`: first token, tokens per second, memory; and how soon closing
an OpenAI client's stream stops it (J-51).

No limit: the figures depend on the model and the machine.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from jobwire.local import free_port

_ROUNDS: Final = 5
_PROMPT: Final = "Write a long story about a river and a mill."


def run() -> bool:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder, _up(Path(folder)) as (url, process):
        _answer(url)  # loads the model
        answers = [_answer(url) for _ in range(_ROUNDS)]
        print(f"  first token      {statistics.median(each[0] for each in answers):8.0f} ms")
        print(f"  tokens/s         {statistics.median(each[1] for each in answers):8.0f}")
        print(f"  worker + models  {_worker_mib(process):8.0f} MiB (PSS)")
        delays = sorted(_cancel_delay(url) for _ in range(_ROUNDS))
        print(f"  close → canceled {delays[len(delays) // 2]:8.0f} ms, slowest {delays[-1]:.0f}")
    return True


@contextmanager
def _up(folder: Path) -> Generator[tuple[str, psutil.Process]]:
    port = free_port()
    command = [sys.executable, "-m", "jobwire", "up", "--only", "jobs", "--port", str(port)]
    with subprocess.Popen([*command, "--data-dir", str(folder / "data")], cwd=folder) as process:
        url = f"http://localhost:{port}"
        try:
            _wait_ready(url)
            yield url, psutil.Process(process.pid)
        finally:
            process.terminate()


def _wait_ready(url: str) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if httpx.get(f"{url}/readyz", trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise TimeoutError("jobwire up is not ready after a minute")


def _answer(url: str) -> tuple[float, float]:
    """Milliseconds to the first token, and tokens per second after it."""
    started = time.monotonic()
    first, usage = 0.0, {"completion_tokens": 0}
    with _stream(url, 200) as response:
        for chunk in _chunks(response):
            if not first and chunk["choices"][0]["delta"].get("content"):
                first = time.monotonic()
            usage = chunk.get("usage") or usage
    tokens = usage["completion_tokens"]
    return (first - started) * 1000, tokens / (time.monotonic() - first)


def _cancel_delay(url: str) -> float:
    """Milliseconds from closing the stream to the end of its job."""
    with _stream(url, 1500) as response:
        job_id = response.headers["x-job-id"]
        next(chunk for chunk in _chunks(response) if chunk["choices"][0]["delta"].get("content"))
    closed = time.monotonic()
    job = httpx.get(
        f"{url}/v1/jobs/{job_id}", headers={"prefer": "wait=30"}, timeout=40, trust_env=False
    ).json()
    assert job["status"] == "canceled", job
    return (time.monotonic() - closed) * 1000


@contextmanager
def _stream(url: str, max_tokens: int) -> Generator[httpx.Response]:
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": _PROMPT}],
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    path = f"{url}/v1/chat/completions"
    with httpx.stream("POST", path, json=body, timeout=120, trust_env=False) as response:
        yield response


def _chunks(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def _worker_mib(up: psutil.Process) -> float:
    """The memory of the worker and its model processes."""
    worker = next(each for each in up.children() if "worker" in each.cmdline())
    programs = [worker, *worker.children(recursive=True)]
    return sum(each.memory_full_info().pss for each in programs) / (1 << 20)
