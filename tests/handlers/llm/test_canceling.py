"""Canceling stops the model at once, measured at the model: while it generates, and while it reads
the prompt; in a child process of the worker, and behind a server (J-51)."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Generator, Iterator, Set
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest

from jobwire.handlers.llm import LlmSettings
from jobwire.handlers.llm.models import files
from jobwire.handlers.llm.models.factory import Models
from jobwire.job.messages import JobId
from jobwire.local import LocalValkey
from tests.handlers.llm.instrumented_model import altered, models_of
from tests.handlers.llm.local_worker import ENDLESS, TOKENS, Fleet, StartFleet
from tests.handlers.llm.recorder import text_of
from tests.handlers.llm.upstream import Upstream, delta, streams, waits
from tests.support import clause, wait_until
from tests.support.jobs_http import ServedJobs

LONG = {"prompt": "The quick brown fox jumps over the lazy dog. " * 300, "max_tokens": 4}
LIMIT_S = 5
BATCHES = 23
"""The prompt has more than 3000 tokens, and is read 128 at a time."""


class Model(NamedTuple):
    """The state of llama.cpp, from its own pages."""

    url: str
    key: str

    async def get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            headers = {"Authorization": f"Bearer {self.key}"}
            answer = await client.get(f"{self.url}{path}", headers=headers)
        assert answer.status_code == 200, answer.text
        return answer

    async def is_busy(self) -> bool:
        (slot,) = (await self.get("/slots")).json()
        return slot["is_processing"]

    async def is_idle(self) -> bool:
        return not await self.is_busy()

    async def decoded(self) -> int:
        """The number of decode steps so far: one per generated token, one per batch of the
        prompt."""
        found = re.search(
            r"^llamacpp:n_decode_total (\d+)", (await self.get("/metrics")).text, re.MULTILINE
        )
        assert found is not None
        return int(found[1])


@pytest.fixture(scope="module")
def in_view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    """The local model with two pages that show its state."""
    pages = "params.endpoint_slots = params.endpoint_metrics = True"
    models = Models(LlmSettings())
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(altered(tmp_path_factory.mktemp("in-view"), pages))
        asyncio.run(_view_of(models))
    yield models
    models.close()


@clause("J-51", "J-16")
@pytest.mark.parametrize("moment", ["while it reads", "while it writes"])
@pytest.mark.parametrize("driver", ["local", "endpoint"])
async def test_j51_cancelling_frees_the_model(
    start: StartFleet, valkey: LocalValkey, in_view: Models, driver: str, moment: str
) -> None:
    seen = await _view_of(in_view)
    if driver == "local":
        fleet = await start(LlmSettings(), in_view)
    else:  # the same model, behind a server
        url = f"{seen.url}/v1"
        fleet = await start(LlmSettings(base_url=url, api_key=seen.key, model=files.CHAT_NAME))
        # Its first response identifies it as llama.cpp, which can report prompt progress.
        await fleet.end(await fleet.submit("chat", {"prompt": "Hi", "max_tokens": 1}))
    before = await seen.decoded()
    with ServedJobs(valkey.url) as served:
        job_id = await fleet.submit("chat", LONG if moment == "while it reads" else ENDLESS)
        if moment == "while it reads":
            await wait_until(seen.is_busy, "the model to read", timeout_s=30)
        else:
            await wait_until(lambda: text_of(fleet.events(job_id)), "the first token")
        answer = await asyncio.to_thread(served.client.post, f"/v1/jobs/{job_id}/cancel")
    assert answer.status_code == 202
    assert (await fleet.end(job_id))["status"] == "canceled"
    await wait_until(seen.is_idle, "the model to be free again", timeout_s=60)
    steps = await seen.decoded() - before
    *_, last = events = fleet.events(job_id)
    assert last.kind == "canceled"
    if moment == "while it reads":
        assert steps < BATCHES, "it has read the prompt to its end"
        assert "token" not in [event.kind for event in events]
    else:
        assert steps < TOKENS, "it has written to its end"
        assert last.data["partial"] == text_of(events) != ""


async def _view_of(models: Models) -> Model:
    """The address of the local model's server, with its secret API key."""
    chat: Any = models.chat()
    async with chat._local.server() as server:
        return Model(server.base_url.removesuffix("/v1"), server.api_key)


@clause("J-51")
@pytest.mark.parametrize("moment", ["before its first word", "in the middle"])
async def test_j51_the_server_sees_the_connection_close(start: StartFleet, moment: str) -> None:
    act = waits if moment == "before its first word" else streams(delta("Hello wor"), then=waits)
    async with Upstream(act) as upstream:
        fleet = await start(LlmSettings(base_url=upstream.url, model="tester"))
        job_id = await fleet.submit("chat", {"prompt": "Hi"}, max_attempts=3)
        reached: dict[str, Callable[[], object]] = {
            "before its first word": lambda: upstream.requests,
            "in the middle": lambda: text_of(fleet.events(job_id)),
        }
        await wait_until(reached[moment], moment)
        await fleet.queue.cancel(job_id)
        ended = await fleet.end(job_id)
        await wait_until(lambda: upstream.left == 1, "the connection to be closed")
    assert ended["status"] == "canceled"
    assert len(upstream.requests) == 1, "a canceled request is not repeated"
    last = fleet.events(job_id)[-1]
    assert last.kind == "canceled"
    assert last.data.get("partial") == (None if moment != "in the middle" else "Hello wor")


@clause("J-51", "J-56")
async def test_j51_the_time_limit_counts_from_the_turn_of_the_model(
    start: StartFleet, cache_dir: Path
) -> None:
    """Three jobs for one model: each waits for those before it, which is reported and not timed."""
    # Not the models of all tests: the jobs' turns belong to one event loop.
    models = Models(LlmSettings(cache_dir=cache_dir))
    with contextlib.closing(models):
        await _three_jobs(await start(LlmSettings(), models))


async def _three_jobs(fleet: Fleet) -> None:
    payload = {"prompt": "Count to ten.", "max_tokens": 48, "temperature": 0, "timeout_s": 60}
    jobs = [await fleet.submit("chat", payload) for _ in range(3)]
    ended = [await fleet.end(job_id) for job_id in jobs]
    assert [each["status"] for each in ended] == ["done"] * 3
    waiting = [
        event.data["before"]
        for job_id in jobs
        for event in fleet.events(job_id)
        if event.kind == "waiting"
    ]
    assert waiting
    assert set(waiting) <= {1, 2}


@clause("J-51", "J-56")
@pytest.mark.timeout(300)
async def test_j51_waiting_for_the_model_longer_than_the_time_limit_is_no_timeout(
    start: StartFleet, cache_dir: Path
) -> None:
    hi: dict[str, Any] = {"prompt": "Hi", "max_tokens": 2}
    with contextlib.closing(Models(LlmSettings(cache_dir=cache_dir))) as models:
        others = models_of()
        fleet = await start(LlmSettings(), models)
        assert (await fleet.end(await fleet.submit("chat", hi)))["status"] == "done"
        with _stopped(models_of() - others):
            first = await fleet.submit("chat", hi)
            await wait_until(lambda: fleet.hash(first)["status"] == "running", "the first job")
            second = await fleet.submit("chat", {**hi, "timeout_s": LIMIT_S}, timeout_s=LIMIT_S)
            await wait_until(lambda: _is_waiting(fleet, second), "the second job to wait for it")
            since_s = time.monotonic()
            await wait_until(lambda: time.monotonic() > since_s + LIMIT_S, "the limit to pass")
        assert (await fleet.end(second))["status"] == "done"
        assert (await fleet.end(first))["status"] == "done"


@contextlib.contextmanager
def _stopped(processes: Set[int]) -> Generator[None]:
    """The model does not answer: the job that has its turn keeps it, and no core is busy."""
    (model,) = map(psutil.Process, processes)
    model.suspend()
    try:
        yield
    finally:
        model.resume()


def _is_waiting(fleet: Fleet, job_id: JobId) -> bool:
    return any(event.kind == "waiting" for event in fleet.events(job_id))
