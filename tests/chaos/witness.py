"""An eye on the raw server with all rights: during a run, and on what is left after it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import httpx
from redis import Redis, RedisError

from jobwire.job.messages import Json
from jobwire.wires.streams import contract
from jobwire.wires.streams.contract import Keys
from tests.chaos.history import TERMINAL, Ended, Event, History, Run
from tests.raw import Raw
from tests.support.servers import Plain

KEYS: Final = Keys()

# One moment, seen whole: every job that is open has an entry in the queue, or waits for its time.
_MISPLACED: Final = """
local found = {}
for _, id in ipairs(redis.call('ZRANGE', 'jobs:open', 0, -1)) do
  local row = redis.call('HMGET', 'job:' .. id, 'status', 'entry_id')
  local placed = row[2] and #redis.call('XRANGE', 'jobs:stream', row[2], row[2]) > 0
  if (row[1] == 'queued' or row[1] == 'running') and not placed
    and not redis.call('ZSCORE', 'jobs:delayed', id) then
    found[#found + 1] = id .. ' is ' .. row[1] .. ' and has no place in line'
  end
end
return found
"""


class Witness:
    """Sees the raw keys."""

    def __init__(self, plain: Plain) -> None:
        self._plain = plain
        self._raw = Raw(plain)

    async def watch_places(self, history: History, until: asyncio.Event) -> None:
        """R7, looked at all the time."""
        while not until.is_set():
            try:
                found = await asyncio.to_thread(self._plain.ask, "EVAL", _MISPLACED, 0)
            except (RedisError, OSError):
                found = []  # the server is away
            if isinstance(found, list):
                history.misplaced += [str(each) for each in found]
            await asyncio.sleep(0.05)

    def unfinished(self, job_ids: Sequence[str]) -> list[str]:
        """Those that have not ended yet."""
        with self._plain.pipeline(transaction=False) as asked:
            for job_id in job_ids:
                asked.hget(KEYS.job(job_id), "status")
            states = cast("list[str | None]", asked.execute())
        return [
            job_id
            for job_id, state in zip(job_ids, states, strict=True)
            if state is not None and state not in TERMINAL
        ]

    def listed(self) -> list[str]:
        """Every job there is."""
        return self._raw.members(KEYS.index())

    def at_rest(self) -> list[str]:
        """What still waits, is pending, delayed or open; one line each."""
        sizes = {
            KEYS.queue: self._raw.length(KEYS.queue),
            "pending": len(self._raw.pending(KEYS.queue, contract.GROUP)),
            KEYS.delayed: len(self._raw.members(KEYS.delayed)),
            KEYS.open: len(self._raw.members(KEYS.open)),
        }
        return [f"{name} holds {size}" for name, size in sizes.items() if size]

    async def jobs(self, port: int, job_ids: Sequence[str]) -> Mapping[str, Ended]:
        """How they stand, as a gateway tells and as it is written."""
        found: dict[str, Ended] = {}
        async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
            for job_id in job_ids:
                said = await client.get(f"http://127.0.0.1:{port}/v1/jobs/{job_id}")
                if said.status_code == 404:
                    continue
                told = cast("dict[str, Json]", said.raise_for_status().json())
                found[job_id] = Ended(
                    str(told["status"]),
                    told["result"],
                    told["error"],
                    self._raw.fields(KEYS.job(job_id)),
                    tuple(_event(*row) for row in self._raw.entries(KEYS.events(job_id))),
                )
        return found


def runs_of(effects: Path) -> list[Run]:
    """The handlers' own lines."""
    began: dict[str, dict[str, Json]] = {}
    ended: dict[str, float] = {}
    for line in effects.read_text().splitlines():
        said = cast("dict[str, Json]", json.loads(line))
        if "job" in said:
            began[str(said["run"])] = said
        else:
            ended[str(said["run"])] = float(str(said["at"]))
    return [
        Run(
            run,
            str(said["job"]),
            int(str(said["attempt"])),
            str(said["worker"]),
            int(str(said["slots"])),
            float(str(said["at"])),
            ended.get(run),
        )
        for run, said in began.items()
    ]


def empty(plain: Redis) -> None:
    """Everything is lost at once (F9)."""
    plain.flushall()


def _event(entry: str, fields: Mapping[str, str]) -> Event:
    data = cast("Json", json.loads(fields["data"]))
    return Event(entry, fields["type"], int(fields["ts"]), data if isinstance(data, dict) else {})
