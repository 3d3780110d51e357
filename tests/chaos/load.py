"""HTTP clients that submit, cancel, read and watch jobs, and record every response.

A caller repeats a request under the same idempotency key until it has a response, as the docs ask
of producers. Some requests are dropped on purpose before the response, so that repeats happen.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final, Literal, cast

import httpx

from jobwire.job.messages import Json
from tests.chaos.fleet import LEASE_S
from tests.chaos.history import GAP, SHORT_TTL_S, TERMINAL, Answer, History, Submission, Watch
from tests.stories.gateways import Watcher
from tests.support import wait_until

_DROPPED: Final = 0.15
_CANCELED: Final = 0.08
_WATCHED: Final = 0.3
RACING: Final = 50
_RACED_KEYS: Final = 10
_ANSWER_TIMEOUT_S: Final = 120.0


class Caller:
    """One client; its random choices follow from its seed and name."""

    def __init__(
        self,
        name: str,
        seed: int,
        ports: Sequence[int],
        history: History,
        *,
        short_lived: float = 0.0,
    ) -> None:
        """`short_lived` is the share of jobs that wait longer than their `ttl_s`."""
        self._short_lived = short_lived
        self.watchers: list[Watcher] = []
        self._name = name
        self._random = Random(f"{seed} {name}")
        self._ports = ports
        self._history = history
        self._own_jobs: list[str] = []
        self._made = 0

    async def go_on(self, until: asyncio.Event) -> None:
        """Send one request after the other; wait for the end of cancels and watches at the end."""
        async with self._client() as client, asyncio.TaskGroup() as others:
            while not until.is_set():
                job_id = await self.submit(client, self._new_submission())
                draw = self._random.random()
                if job_id not in self._own_jobs:
                    pass  # refused, or gone soon after its end
                elif draw < _CANCELED:
                    others.create_task(self._cancel(client, job_id, self._random.random()))
                elif draw < _CANCELED + _WATCHED:
                    self._watch(job_id, others)
                if self._own_jobs and self._random.random() < 0.3:
                    await self._request(client, "look", self._random.choice(self._own_jobs))
                self._cut_a_stream()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._random.uniform(0.05, 0.25)):
                        await until.wait()

    async def in_line(self, count: int) -> None:
        """Submit quick jobs, one after the other."""
        async with self._client() as client:
            for _ in range(count):
                self._made += 1
                job_id = await self.submit(client, Submission(f"{self._name}-{self._made}"))
                self._history.calm.append(job_id)

    async def burst(self, count: int) -> None:
        """Submit many jobs whose delay is longer than their lifetime, and which expire together."""
        gate = asyncio.Semaphore(20)

        async def one(client: httpx.AsyncClient, number: int) -> None:
            submission = Submission(
                f"{self._name}-burst-{number}", ttl_s=SHORT_TTL_S, delay_s=SHORT_TTL_S + 2
            )
            async with gate:
                await self.submit(client, submission)

        async with self._client() as client:
            await asyncio.gather(*(one(client, number) for number in range(count)))

    async def race(self, until: asyncio.Event) -> None:
        """Submit quick jobs, RACING requests at a time, several of them with the same key."""
        async with self._client() as client:
            while not until.is_set():
                self._made += 1
                async with asyncio.TaskGroup() as racing:
                    for number in range(RACING):
                        key = f"{self._name}-{self._made}-{number % _RACED_KEYS}"
                        racing.create_task(self.submit(client, Submission(key)))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await until.wait()

    async def submit(self, client: httpx.AsyncClient, submission: Submission) -> str:
        """Repeat until the job exists or the refusal is final; returns the job's id or ""."""
        self._history.submissions[submission.key] = submission

        async def answered() -> Answer | None:
            answer = await self._request(client, "submit", submission.key)
            final = answer and (answer.job_id or answer.status in (400, 409, 413, 422))
            return answer if final else None

        answer = await wait_until(
            answered, f"an answer to {submission.key}", timeout_s=_ANSWER_TIMEOUT_S
        )
        assert answer is not None
        if answer.job_id and not submission.ttl_s:
            self._own_jobs.append(answer.job_id)
        return answer.job_id

    async def _cancel(self, client: httpx.AsyncClient, job_id: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._history.cancel_requested[job_id] = time.time() * 1000

        async def answered() -> bool:
            answer = await self._request(client, "cancel", job_id)
            return answer is not None and answer.status < 500

        await wait_until(
            answered, f"an answer to a cancel of {job_id}", timeout_s=_ANSWER_TIMEOUT_S
        )

    async def _request(
        self, client: httpx.AsyncClient, verb: Literal["submit", "cancel", "look"], about: str
    ) -> Answer | None:
        """One request to one of the gateways; None where no answer came."""
        port = self._random.choice(self._ports)
        site = f"http://127.0.0.1:{port}/v1/jobs"
        dropped = self._random.random() < _DROPPED
        timeout_s = self._random.uniform(0.001, 0.02) if dropped else 20
        try:
            async with asyncio.timeout(timeout_s):
                if verb == "submit":
                    response = await client.post(
                        site,
                        json=self._history.submissions[about].body(),
                        headers={"idempotency-key": about},
                    )
                elif verb == "cancel":
                    response = await client.post(f"{site}/{about}/cancel")
                else:
                    response = await client.get(f"{site}/{about}")
        except (httpx.HTTPError, TimeoutError):
            return None
        answer = replace(_read(verb, about, response), port=port, at_ms=time.time() * 1000)
        self._history.answers.append(answer)
        return answer

    def _new_submission(self) -> Submission:
        self._made += 1
        random = self._random
        key = f"{self._name}-{self._made}"
        if random.random() < 0.03:
            return Submission(key, valid=False)
        if random.random() < 0.01:
            return Submission(key, "poison", max_attempts=1)
        if random.random() < self._short_lived:
            return Submission(key, ttl_s=SHORT_TTL_S, delay_s=SHORT_TTL_S + 2)
        if random.random() < 0.5:
            return Submission(key, fails=random.choice((0, 0, 0, 1, 3)))
        steps = random.randrange(1, 6)
        # Some work takes longer than the lease, so that frozen workers become zombies.
        whole_s = random.choice((0.05, 0.3, LEASE_S, 1.5 * LEASE_S))
        return Submission(
            key,
            random.choice(("work", "work", "work", "thread", "process", "block")),
            steps=steps,
            pause_s=whole_s / steps,
            fails=random.choice((0, 0, 0, 0, 1)),
            delay_s=random.choice((0.0, 0.0, 0.0, 0.7)),
        )

    def _watch(self, job_id: str, others: asyncio.TaskGroup) -> None:
        pause_s = self._random.choice((0.0, 0.0, 0.2))
        watcher = Watcher(self._random.choice(self._ports), job_id, pause_s=pause_s)
        self.watchers.append(watcher)
        others.create_task(watch_for(watcher, limit_s=180))

    def _cut_a_stream(self) -> None:
        open_ones = [watcher for watcher in self.watchers if not watcher.ended]
        for watcher in self._random.sample(open_ones, min(2, len(open_ones))):
            watcher.cut()

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=20, trust_env=False)


async def watch_for(watcher: Watcher, limit_s: float) -> None:
    """Read to the end of the job, with a limit; a missing end is a violation of R12."""
    with contextlib.suppress(AssertionError):
        await watcher.read_to_the_end(limit_s)


def seen_by(watcher: Watcher) -> Watch:
    """What the watcher saw, for the checker."""
    seen = (GAP if event.name == "gap" else event.id for event in watcher.seen)
    return Watch(watcher.job_id, tuple(each for each in seen if each), watcher.ended)


def _read(
    verb: Literal["submit", "cancel", "look"], about: str, response: httpx.Response
) -> Answer:
    try:
        body = cast("dict[str, Json]", response.json())
    except ValueError:
        body = {}
    names = ("job_id", "code", "status", "durability")
    fields = {name: str(body.get(name) or "") for name in names}
    if response.status_code >= 400:
        return Answer(verb, about, response.status_code, fields["code"])
    state = fields["status"] if fields["status"] in TERMINAL else ""
    level = fields["durability"]
    return Answer(verb, about, response.status_code, "", fields["job_id"], state, level)
