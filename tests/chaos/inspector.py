"""Reads the raw keys of the server, during a run and at its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, cast

import httpx
from redis import Redis, RedisError

from jobwire.job.ids import shard_of
from jobwire.job.messages import Json
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import StreamsKeys
from tests.chaos.history import SHORT_TTL_S, TERMINAL, Ended, Event, History, Run
from tests.support.raw import Raw
from tests.support.servers import Plain

KEYS: Final = StreamsKeys()

# Atomic: every open job has an entry in the queue, or a due time.
_MISPLACED: Final = """
local prefix = ARGV[1]
local found = {}
for _, id in ipairs(redis.call('ZRANGE', prefix .. 'jobs:open', 0, -1)) do
  local row = redis.call('HMGET', prefix .. 'job:' .. id, 'status', 'entry_id', 'queue')
  local stream = prefix .. 'jobs:stream' .. (row[3] and ':' .. row[3] or '')
  local placed = row[2] and #redis.call('XRANGE', stream, row[2], row[2]) > 0
  if (row[1] == 'queued' or row[1] == 'running') and not placed
    and not redis.call('ZSCORE', prefix .. 'jobs:delayed', id) then
    found[#found + 1] = id .. ' is ' .. row[1] .. ' and has no queue entry and no due time'
  end
end
return found
"""


class Place(NamedTuple):
    """The keys of one shard, and a client of their server."""

    plain: Plain
    keys: StreamsKeys = KEYS

    @property
    def raw(self) -> Raw:
        return Raw(self.plain)

    def misplaced(self) -> list[str]:
        """Open jobs without a place."""
        found = self.plain.call("EVAL", _MISPLACED, 1, self.keys.queue, self.keys.prefix)
        assert isinstance(found, list)
        return [str(each) for each in found]

    def listed(self) -> list[str]:
        return self.raw.members(self.keys.index())

    def at_rest(self) -> list[str]:
        raw, keys = self.raw, self.keys
        queues = raw.find(f"{keys.queue}*")
        sizes = {
            f"{keys.prefix}queues": sum(map(raw.length, queues)),
            f"{keys.prefix}pending": sum(len(raw.pending(key, contract.GROUP)) for key in queues),
            keys.delayed: len(raw.members(keys.delayed)),
            keys.open: len(raw.members(keys.open)),
        }
        return [f"{name} holds {size}" for name, size in sizes.items() if size]


class Inspector:
    """Reads the raw keys of all shards; without shards, there is one place."""

    def __init__(self, *places: Place) -> None:
        self._places = places

    def _of(self, job_id: str) -> Place:
        return self._places[shard_of(job_id)]

    async def watch_places(self, history: History, until: asyncio.Event) -> None:
        """Check R7, and R1 of short-lived jobs, until the run is over."""
        short_lived = ShortLived(self, history)
        while not until.is_set():
            for place in self._places:
                with contextlib.suppress(RedisError, OSError):  # the server is unavailable
                    history.misplaced += await asyncio.to_thread(place.misplaced)
            with contextlib.suppress(RedisError, OSError):
                await asyncio.to_thread(short_lived.sample)
            await asyncio.sleep(0.05)

    def states(self, job_ids: Sequence[str]) -> list[str | None]:
        """The status of each job; None if it does not exist."""
        found: dict[str, str | None] = {}
        for number, place in enumerate(self._places):
            own = [job_id for job_id in job_ids if shard_of(job_id) == number]
            with place.plain.pipeline(transaction=False) as pipeline:
                for job_id in own:
                    pipeline.hget(place.keys.job(job_id), "status")
                found.update(zip(own, cast("list[str | None]", pipeline.execute()), strict=True))
        return [found[job_id] for job_id in job_ids]

    def unfinished(self, job_ids: Sequence[str]) -> list[str]:
        """Those that have not ended yet."""
        return [
            job_id
            for job_id, state in zip(job_ids, self.states(job_ids), strict=True)
            if state is not None and state not in TERMINAL
        ]

    def listed(self) -> list[str]:
        """Every job there is."""
        return [job_id for place in self._places for job_id in place.listed()]

    def at_rest(self) -> list[str]:
        """Jobs that still wait, are pending, delayed or open; one line each."""
        return [line for place in self._places for line in place.at_rest()]

    async def jobs(self, port: int, job_ids: Sequence[str]) -> Mapping[str, Ended]:
        """The jobs as a gateway returns them and as the raw keys have them."""
        found: dict[str, Ended] = {}
        async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
            for job_id in job_ids:
                response = await client.get(f"http://127.0.0.1:{port}/v1/jobs/{job_id}")
                if response.status_code == 404:
                    continue
                body = cast("dict[str, Json]", response.raise_for_status().json())
                raw, keys = self._of(job_id).raw, self._of(job_id).keys
                found[job_id] = Ended(
                    str(body["status"]),
                    body["result"],
                    body["error"],
                    raw.fields(keys.job(job_id)),
                    tuple(_event(*row) for row in raw.entries(keys.events(job_id))),
                )
        return found


class ShortLived:
    """Jobs whose `ttl_s` is shorter than their wait: each must be seen to end before it expires."""

    def __init__(self, inspector: Inspector, history: History) -> None:
        self._inspector = inspector
        self._history = history
        self._seen_s: dict[str, float] = {}
        """Job → when it was last seen unfinished, or accepted."""
        self._over: set[str] = set()
        self._samples_s: list[float] = []

    def sample(self) -> None:
        """Note which jobs have ended, and which expired without an end."""
        history, now_s = self._history, time.monotonic()
        for key, job_id in history.accepted.items():
            if history.submissions[key].ttl_s and job_id not in self._over:
                self._seen_s.setdefault(job_id, now_s)
        open_ones = [job_id for job_id in self._seen_s if job_id not in self._over]
        for job_id, state in zip(open_ones, self._inspector.states(open_ones), strict=True):
            if state is not None and state not in TERMINAL:
                self._seen_s[job_id] = now_s
                continue
            self._over.add(job_id)
            # The job may have ended and expired between two samples; and a server that was
            # unavailable for half of the lifetime cannot keep the job.
            blind_s = now_s - self._seen_s[job_id]
            if state is None and blind_s < SHORT_TTL_S / 2 and self._outage_s() < SHORT_TTL_S / 2:
                history.lost.append(f"{job_id} was unfinished {blind_s:.2f} s before it was gone")
        self._samples_s.append(now_s)

    def _outage_s(self) -> float:
        """For how much of the last lifetime the server did not answer, or its clock was ahead."""
        since_s = time.monotonic() - SHORT_TTL_S
        samples = [since_s, *(at for at in self._samples_s if at > since_s), time.monotonic()]
        outage_s = sum(gap for one, other in pairwise(samples) if (gap := other - one) > 0.3)
        jumped = any(end / 1000 > time.time() - SHORT_TTL_S for _, end in self._history.jumps)
        return outage_s + (SHORT_TTL_S / 4 if jumped else 0)


def runs_of(effects: Path) -> list[Run]:
    """The runs, from the lines that the handlers wrote."""
    began: dict[str, dict[str, Json]] = {}
    ended: dict[str, tuple[float, int]] = {}
    for line in effects.read_text().splitlines():
        row = cast("dict[str, Json]", json.loads(line))
        if "job" in row:
            began[str(row["run"])] = row
        else:
            ended[str(row["run"])] = float(str(row["at"])), int(str(row["reported"]))
    runs: list[Run] = []
    for run, row in began.items():
        at_ms, reports = ended.get(run, (None, None))
        who = (str(row["job"]), int(str(row["attempt"])), str(row["worker"]))
        slots_and_start = (int(str(row["slots"])), float(str(row["at"])))
        runs.append(Run(run, *who, *slots_and_start, at_ms, str(row["task"]), reports))
    return runs


def empty(plain: Redis) -> None:
    """Delete all keys (F9)."""
    plain.flushall()


def _event(entry: str, fields: Mapping[str, str]) -> Event:
    data = cast("Json", json.loads(fields["data"]))
    payload = data if isinstance(data, dict) else {}
    return Event(entry, fields["type"], int(fields["ts"]), payload, fields["step"])
