"""A program of a team that has read the published contract and nothing else: bullmq_plain.py URL

It uses a plain client and its own scripts, and knows no marker, no score with a counter and no
`priority` field. The same calls and answers as the programs with an official package. Known limits
of such a program: it serves no delayed jobs, its own pushes are served last in first out, a retry
of its jobs by an official package does not end (`attemptsMade`), and Node's QueueEvents stops at
its progress events, so it sends none unless asked to.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from typing import Any

import redis

BY = "plain"
LOCK_MS = 30_000

PICK_UP = """
local base, now, token, worker = KEYS[1], ARGV[1], ARGV[2], ARGV[4]
if redis.call('HGET', base .. 'meta', 'paused') == '1' then return false end
local id = redis.call('ZPOPMIN', base .. 'prioritized')[1] or redis.call('LPOP', base .. 'wait')
if not id then return false end
redis.call('SET', base .. id .. ':lock', token, 'PX', ARGV[3])
redis.call('RPUSH', base .. 'active', id)
redis.call('HSET', base .. id, 'processedOn', now, 'workerId', worker)
redis.call('HINCRBY', base .. id, 'attemptsMade', 1)
redis.call('XADD', base .. 'events', '*', 'event', 'active', 'jobId', id, 'timestamp', now,
  'workerId', worker)
return { id, redis.call('HGETALL', base .. id) }
"""
COMPLETE = """
local base, id, value, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
redis.call('LREM', base .. 'active', 0, id)
redis.call('DEL', base .. id .. ':lock')
redis.call('HSET', base .. id, 'returnvalue', value, 'finishedOn', now)
redis.call('ZADD', base .. 'completed', now, id)
redis.call('XADD', base .. 'events', '*', 'event', 'completed', 'jobId', id, 'timestamp', now,
  'returnvalue', value)
return 1
"""


class Team:
    def __init__(self, url: str) -> None:
        self._client: Any = redis.Redis.from_url(url, decode_responses=True)

    def do(self, call: dict[str, Any]) -> object:
        return getattr(self, f"_{call.pop('op')}")(**call)

    def _produce(self, queue: str, count: int) -> list[object]:
        return self._results(queue, self._submit(queue, count))

    def _submit(self, queue: str, count: int, priority: int = 0) -> list[str]:
        """Contract 1."""
        base, ids = f"bull:{queue}:", list[str]()
        for number in range(count):
            job_id = str(self._client.incr(f"{base}id"))
            self._client.hset(
                f"{base}{job_id}",
                mapping={
                    "name": "task",
                    "data": json.dumps({"n": number}),
                    "opts": json.dumps({"priority": priority, "attempts": 3}),
                    "progress": "0",
                    "delay": "0",
                    "timestamp": _now_ms(),
                    "attemptsMade": "0",
                },
            )
            if priority:
                self._client.zadd(f"{base}prioritized", {job_id: priority})
            else:
                self._client.rpush(f"{base}wait", job_id)
            event = {"event": "waiting", "jobId": job_id, "timestamp": _now_ms()}
            self._client.xadd(f"{base}events", event)
            ids.append(job_id)
        return ids

    def _results(self, queue: str, ids: list[str]) -> list[object]:
        found: list[object] = []
        for job_id in ids:
            while (value := self._client.hget(f"bull:{queue}:{job_id}", "returnvalue")) is None:
                time.sleep(0.01)
            found.append(json.loads(value))
        return found

    def _work(self, queue: str, progress: bool = False) -> None:
        threading.Thread(target=self._loop, args=(queue, progress), daemon=True).start()

    def _loop(self, queue: str, progress: bool) -> None:
        """Contracts 2, 4 and 7, one job at a time."""
        base = f"bull:{queue}:"
        while True:
            token = str(uuid.uuid4())
            taken = self._client.eval(PICK_UP, 1, base, _now_ms(), token, LOCK_MS, "plain-1")
            if taken is None:
                time.sleep(0.01)
                continue
            job_id, flat = taken
            job = dict(zip(flat[::2], flat[1::2], strict=True))
            if progress:
                self._client.hset(f"{base}{job_id}", "progress", 50)
                event = {"event": "progress", "jobId": job_id, "progress": 50}
                self._client.xadd(f"{base}events", {**event, "timestamp": _now_ms()})
            value = json.dumps({"by": BY, "n": json.loads(job["data"]).get("n")})
            self._client.eval(COMPLETE, 1, base, job_id, value, _now_ms())


def _now_ms() -> int:
    return int(time.time() * 1000)


def main(url: str) -> None:
    team = Team(url)
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            reply = {"value": team.do(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - reported to the test
            reply = {"error": f"{type(error).__name__}: {error}", "code": None}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
