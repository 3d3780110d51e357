"""A-8: the text of a job that is interrupted in its middle, as readers of the clean view have it.

Jobs stream text, a third of it in a step. Their workers are killed, stopped or frozen at random
words, or the jobs fail or wait there, twice each; then a last worker ends them. Every reader must
have the stored result at the end: those that stay, those that reconnect all the time,
and those that come late. TAKEN_BACK_ROUNDS is the number of jobs of each way (100 for a report).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from jobwire import AsyncClient
from jobwire.client import Event
from jobwire.local import LocalValkey
from tests.stories.handlers import WAITS
from tests.stories.site import Site, survivor_of
from tests.support import Program, clause, wait_until
from tests.support.jobs_http import ServedJobs

ROUNDS = int(os.environ.get("TAKEN_BACK_ROUNDS", "4"))
WORDS = [f"word-{number}" for number in range(60)]
WAYS = ("kill", "SIGTERM", "reclaim", "retry", "suspend")
THIRD = len(WORDS) // 3
LOST = ("kill", "SIGTERM", "reclaim")
ALL_S = 240.0
_READERS = 25
"""Jobs whose readers share a client."""


class Read(NamedTuple):
    text: str
    rollbacks: int


async def read(client: AsyncClient, job_id: str, dice: random.Random | None = None) -> Read:
    """The text of a job, over connections that the reader itself ends if it has dice."""
    shown: list[Event] = []
    after, rollbacks = None, 0
    while True:
        left = dice.randint(1, 40) if dice else 10**9
        async with contextlib.aclosing(client.events(job_id, after=after)) as events:
            async for event in events:
                shown = [earlier for earlier in shown if not event.takes_back(earlier)]
                rollbacks += event.type == "rollback"
                if event.type == "token":
                    shown.append(event)
                if event.ends_job:
                    texts = [cast("dict[str, str]", each.data)["text"] for each in shown]
                    return Read("".join(texts), rollbacks)
                after = event.id or after
                left -= 1
                if left <= 0:
                    break


class Recital:
    """The jobs of one way, and their readers."""

    def __init__(self, site: Site, way: str, seed: str) -> None:
        self.site, self.way = site, way
        self.dice = random.Random(seed)
        self.jobs: list[str] = []

    async def begin(self) -> None:
        for _ in range(ROUNDS):
            stops = self.dice.sample(range(len(WORDS)), 2)
            if self.way == "suspend" or stops[0] >= 2 * THIRD > stops[1]:
                stops.sort()  # a step that is recorded is not run again
            job = await self.site.submit(
                "recites", queue=WAITS, words=WORDS, stops=stops, way=self.way
            )
            self.jobs.append(job)

    async def interrupt(self, number: int) -> Program | None:
        """A worker that runs all jobs up to their next stop, and loses them there. One that is
        frozen is returned."""
        self.site.phase.write_text(str(number))
        victim = self.site.victim(slots=ROUNDS, JOBWIRE_WORKER_DRAIN="200ms")
        stopped = [self.site.folder / f"{job}-{number}" for job in self.jobs]
        await wait_until(lambda: all(each.exists() for each in stopped), "stops", timeout_s=ALL_S)
        if self.way == "SIGTERM":
            victim.terminate()
            assert await asyncio.to_thread(victim.wait) == 0
            return None
        if self.way == "kill":
            victim.kill()
        else:
            victim.freeze()
        return victim if self.way == "reclaim" else None

    async def signal_all(self, served: ServedJobs) -> None:
        """Send each signal when its job waits for it."""

        async def answer(job: str) -> None:
            for _ in range(2):

                async def waits() -> dict[str, str]:
                    found = await asyncio.to_thread(served.job, job)
                    return cast("dict[str, str]", found.get("waits_for"))

                wait = await wait_until(waits, "the wait", timeout_s=ALL_S)
                path = f"/v1/jobs/{job}/signals/{wait['name']}"
                answer = await asyncio.to_thread(served.client.post, path, json={})
                assert answer.is_success, answer.text

                async def is_over(name: str = wait["name"]) -> bool:
                    return (await waits() or {}).get("name") != name

                await wait_until(is_over, "the signal to be taken", timeout_s=ALL_S)

        for job in self.jobs:
            await answer(job)


@contextlib.asynccontextmanager
async def clients(url: str, count: int) -> AsyncGenerator[list[AsyncClient]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(AsyncClient(url)) for _ in range(count)]


@clause("A-8", "J-15", "J-40", "D-9")
@pytest.mark.parametrize("way", WAYS)
async def test_a08_every_reader_of_the_clean_view_ends_with_the_result(
    valkey: LocalValkey, tmp_path: Path, way: str
) -> None:
    groups = -(-ROUNDS // _READERS)
    async with Site(valkey.url, tmp_path, max_deliveries=1000) as site:
        recital = Recital(site, way, f"{way} {ROUNDS}")
        await recital.begin()
        with ServedJobs(valkey.url) as served:
            async with clients(served.url, 2 * groups) as found, asyncio.TaskGroup() as group:
                steady = [
                    group.create_task(read(found[at // _READERS], job))
                    for at, job in enumerate(recital.jobs)
                ]
                moving = [
                    group.create_task(
                        read(found[groups + at // _READERS], job, random.Random(f"{way} {at}"))
                    )
                    for at, job in enumerate(recital.jobs)
                ]
                frozen: list[Program | None] = []
                if way in LOST:
                    frozen = [await recital.interrupt(number) for number in range(2)]
                site.phase.write_text("2")
                async with survivor_of([site], site.url, (WAITS,)):
                    if way == "suspend":
                        await recital.signal_all(served)
                    await site.until_all(recital.jobs, "done", ALL_S)
                for program in filter(None, frozen):
                    program.thaw()
                reads = [await each for each in (*steady, *moving)]
                late = [await read(found[0], job) for job in recital.jobs]
            results = [served.job(job)["result"] for job in recital.jobs]
    assert results == [{"text": "".join(f"{word} " for word in WORDS)}] * ROUNDS
    text = cast("dict[str, str]", results[0])["text"]
    wrong = Counter(each.text == text for each in (*reads, *late))
    assert wrong == {True: 3 * ROUNDS}
    assert not any(each.rollbacks for each in late), "who comes late has nothing to take back"
    taken_back = any(each.rollbacks for each in reads[:ROUNDS])
    assert taken_back == (way != "suspend")
