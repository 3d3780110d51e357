"""CPU of the caller for one submit, one get and one event: our clients, and plain httpx that only
encodes, decodes and splits the stream into lines.

The limits: a call at most 1.5 times plain httpx; an event at most 2.5 times, since plain httpx
neither parses ids nor removes duplicates.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import httpx
import msgspec

from bench.gateway import gateway_server
from bench.measure import Row, medians
from jobwire import AsyncClient, Client
from jobwire.client.messages import Job
from jobwire.local import LocalValkey
from jobwire.valkey import Config
from jobwire.valkey.blocking_socket import BlockingSocket

_ROUNDS: Final = 5
_CALLS: Final = 200
_EVENTS: Final = 3_000
_BARS: Final = {"submit": 1.5, "get": 1.5, "event": 2.5}
_PAYLOAD: Final = {
    "messages": [{"role": "user", "content": "Tell me a story about a fox and a crow. " * 3}],
    "temperature": 0.7,
}
_BODY: Final = {"task": "chat", "payload": _PAYLOAD}
_HEADERS: Final = {"Content-Type": "application/json", "Accept": "text/event-stream"}


class _Event(msgspec.Struct):
    """An event, or the first `hello`."""

    type: str = ""
    ts: int = 0
    step: str = ""
    data: object = None


_event: Final = msgspec.json.Decoder(_Event)


def _us(calls: int, work: Callable[[], object]) -> float:
    """CPU µs of this process per call."""
    before_s = time.process_time()
    work()
    return (time.process_time() - before_s) / calls * 1e6


async def _us_async(calls: int, work: Callable[[], Awaitable[object]]) -> float:
    before_s = time.process_time()
    await work()
    return (time.process_time() - before_s) / calls * 1e6


# ── plain httpx ──────────────────────────────────────────────────────────────────────────────────


def _bare(http: httpx.Client, job: str, finished: str) -> dict[str, float]:
    def submit() -> None:
        for _ in range(_CALLS):
            answer = http.post("/v1/jobs", content=msgspec.json.encode(_BODY))
            msgspec.json.decode(answer.content, type=Job)

    def get() -> None:
        for _ in range(_CALLS):
            msgspec.json.decode(http.get(f"/v1/jobs/{job}").content, type=Job)

    def events() -> None:
        with http.stream("GET", f"/v1/jobs/{finished}/events") as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    _event.decode(line[6:])

    return {
        "submit bare": _us(_CALLS, submit),
        "get bare": _us(_CALLS, get),
        "event bare": _us(_EVENTS, events),
    }


async def _bare_async(http: httpx.AsyncClient, job: str, finished: str) -> dict[str, float]:
    async def submit() -> None:
        for _ in range(_CALLS):
            answer = await http.post("/v1/jobs", content=msgspec.json.encode(_BODY))
            msgspec.json.decode(answer.content, type=Job)

    async def get() -> None:
        for _ in range(_CALLS):
            msgspec.json.decode((await http.get(f"/v1/jobs/{job}")).content, type=Job)

    async def events() -> None:
        async with http.stream("GET", f"/v1/jobs/{finished}/events") as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    _event.decode(line[6:])

    return {
        "submit bare async": await _us_async(_CALLS, submit),
        "get bare async": await _us_async(_CALLS, get),
        "event bare async": await _us_async(_EVENTS, events),
    }


# ── ours ─────────────────────────────────────────────────────────────────────────────────────────


def _ours(jobs: Client, job: str, finished: str) -> dict[str, float]:
    def submit() -> None:
        for _ in range(_CALLS):
            jobs.submit("chat", _PAYLOAD)

    def get() -> None:
        for _ in range(_CALLS):
            jobs.get(job)

    return {
        "submit": _us(_CALLS, submit),
        "get": _us(_CALLS, get),
        "event": _us(_EVENTS, lambda: sum(1 for _ in jobs.events(finished))),
    }


async def _ours_async(jobs: AsyncClient, job: str, finished: str) -> dict[str, float]:
    async def submit() -> None:
        for _ in range(_CALLS):
            await jobs.submit("chat", _PAYLOAD)

    async def get() -> None:
        for _ in range(_CALLS):
            await jobs.get(job)

    async def events() -> None:
        async for _ in jobs.events(finished):
            pass

    return {
        "submit async": await _us_async(_CALLS, submit),
        "get async": await _us_async(_CALLS, get),
        "event async": await _us_async(_EVENTS, events),
    }


async def _round(url: str, job: str, finished: str) -> Row:
    with httpx.Client(base_url=url, headers=_HEADERS, trust_env=False) as http, Client(url) as jobs:
        row = {**_bare(http, job, finished), **_ours(jobs, job, finished)}
    bare = httpx.AsyncClient(base_url=url, headers=_HEADERS, trust_env=False)
    async with bare, AsyncClient(url) as jobs:
        row |= await _bare_async(bare, job, finished)
        return row | await _ours_async(jobs, job, finished)


def _write_events(valkey: LocalValkey, job: str) -> None:
    """Write many events of a job, the last one terminal."""
    writer = BlockingSocket(Config.from_url(valkey.admin_url), "bench", timeout_s=10)
    for number in range(_EVENTS):
        kind = "done" if number == _EVENTS - 1 else "token"
        text = f'{{"text":" word{number}","at":{number},"attempt":1}}'
        fields = ("type", kind, "ts", "1767225600000", "step", "worker.report", "data", text)
        writer.call("XADD", f"job:{job}:events", "*", *fields)
    writer.close()


def run() -> bool:
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalValkey(Path(folder), admin=True) as valkey,
        gateway_server(valkey.url) as (_, port),
    ):
        url = f"http://127.0.0.1:{port}"
        with Client(url) as jobs:
            job, finished = (jobs.submit("chat", _PAYLOAD).job_id for _ in range(2))
        _write_events(valkey, finished)
        asyncio.run(_round(url, job, finished))  # warm up
        found = medians([asyncio.run(_round(url, job, finished)) for _ in range(_ROUNDS)])
    met = True
    print(f"{'µs of the caller’s CPU':<24} {'ours':>8} {'httpx':>8} {'ratio':>6}")
    for kind in ("", " async"):
        for what, bar in _BARS.items():
            ours, bare = found[f"{what}{kind}"], found[f"{what} bare{kind}"]
            print(f"  {what + kind:<22} {ours:>8.1f} {bare:>8.1f} {ours / bare:>6.2f} (bar {bar})")
            met &= ours / bare <= bar
    return met
