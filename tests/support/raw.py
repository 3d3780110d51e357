"""Typed access to raw keys through a client that is independent of jobwire.

Contract tests read and write the wire with it as a foreign program would.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, cast

from jobwire.systems.jobs.scripts import SCRIPTS
from tests.support import Plain

OVER = "the-end-of-the-recording"
# Lifetimes, the time of the next renewal, and the times that both are compared with.
_LET_PASS = """
local passed_ms = tonumber(ARGV[1])
for _, pattern in ipairs({'job:*', 'idempotency:*'}) do
  for _, key in ipairs(redis.call('KEYS', pattern)) do
    redis.call('PEXPIRE', key, redis.call('PTTL', key) - passed_ms)
    if redis.call('TYPE', key).ok == 'hash' then
      for _, name in ipairs({'created_ts', 'updated_ts', 'started_ts'}) do
        if redis.call('HEXISTS', key, name) == 1 then
          redis.call('HINCRBY', key, name, -passed_ms)
        end
      end
    end
  end
end
for _, id in ipairs(redis.call('ZRANGE', 'jobs:open', 0, -1)) do
  redis.call('ZINCRBY', 'jobs:open', -passed_ms, id)
end
for _, key in ipairs(redis.call('KEYS', 'jobs:bytes:*')) do
  local spans = redis.call('HGETALL', key)
  for at = 1, #spans, 2 do
    if spans[at] ~= 'total' then
      redis.call('HDEL', key, spans[at])
      redis.call('HSET', key, spans[at] - passed_ms / 1000, spans[at + 1])
    end
  end
end
"""
Fields = dict[str, str]


class Raw:
    def __init__(self, plain: Plain) -> None:
        self.plain = plain

    def call(self, *args: str | bytes | int | float) -> object:
        """Any command."""
        return self.plain.call(*args)

    # Keys

    def find(self, pattern: str = "*") -> list[str]:
        return sorted(cast("list[str]", self.call("KEYS", pattern)))

    def kind(self, key: str) -> str:
        return cast(str, self.call("TYPE", key))

    def ttl_s(self, key: str) -> int:
        return cast(int, self.call("TTL", key))

    def expire(self, key: str, ttl_s: int) -> None:
        self.call("EXPIRE", key, ttl_s)

    def delete(self, *keys: str) -> None:
        if keys:
            self.call("DEL", *keys)

    def exists(self, *keys: str) -> int:
        return cast(int, self.call("EXISTS", *keys))

    def corrupt(self, key: str) -> None:
        """Store a value of another type under a key of the wire."""
        self.delete(key)
        self.call("SET", key, "not yours", "EX", 600)

    def let_pass(self, seconds: float) -> None:
        """Make all jobs older, as if this time had passed without a program that runs."""
        self.plain.eval(_LET_PASS, 0, round(1000 * seconds))

    # Hashes and sorted sets

    def fields(self, key: str) -> Fields:
        found = self.plain.hgetall(key)
        return cast("Fields", found)

    def field(self, key: str, name: str) -> str | None:
        return cast("str | None", self.call("HGET", key, name))

    def write(self, key: str, fields: Mapping[str, str], ttl_s: int = 600) -> None:
        self.call("HSET", key, *(value for pair in fields.items() for value in pair))
        self.expire(key, ttl_s)

    def members(self, key: str) -> list[str]:
        return cast("list[str]", self.call("ZRANGE", key, 0, -1))

    # Streams

    def entries(self, key: str) -> list[tuple[str, Fields]]:
        rows = self.plain.xrange(key)
        return cast("list[tuple[str, Fields]]", rows)

    def last(self, key: str) -> Fields:
        return self.entries(key)[-1][1]

    def length(self, key: str) -> int:
        return cast(int, self.call("XLEN", key))

    def add(self, key: str, fields: Mapping[str, str]) -> str:
        command = [value for pair in fields.items() for value in pair]
        return cast(str, self.call("XADD", key, "*", *command))

    def pending(self, key: str, group: str = "workers") -> dict[str, str]:
        """Entry → consumer."""
        rows = cast("list[dict[str, str]]", self.plain.xpending_range(key, group, "-", "+", 10_000))
        return {row["message_id"]: row["consumer"] for row in rows}

    def consumers(self, key: str, group: str = "workers") -> list[str]:
        rows = cast("list[dict[str, str]]", self.plain.xinfo_consumers(key, group))
        return sorted(row["name"] for row in rows)

    def read(self, key: str, consumer: str, group: str = "workers", count: int = 1) -> list[str]:
        """Read as a member of the group; the entries' ids."""
        rows = cast(
            "list[tuple[str, list[tuple[str, Fields]]]]",
            self.plain.xreadgroup(group, consumer, {key: ">"}, count=count),
        )
        return [entry for _, found in rows for entry, _ in found]

    def blocked(self) -> int:
        """How many clients wait in a blocking read."""
        return cast(int, self.plain.info("clients")["blocked_clients"])

    def now_ms(self) -> int:
        seconds, micros = self.plain.time()
        return seconds * 1000 + micros // 1000


def foreign_job(raw: Raw, job_id: str, *, ttl_s: int = 600, **fields: str) -> str:
    """Write a job as a foreign gateway does; returns its queue entry."""
    created = "1700000000000"
    plain = {"job_id": job_id, "task": "echo", "payload": '{"a":1}', "status": "queued"}
    times = {"created_ts": created, "updated_ts": created, "ttl_s": str(ttl_s)}
    raw.write(f"job:{job_id}", {**plain, **times, "result": "", "error": "", **fields}, ttl_s)
    raw.add(f"job:{job_id}:events", {"type": "queued", "ts": "1", "step": "x", "data": "{}"})
    raw.expire(f"job:{job_id}:events", ttl_s)
    return raw.add("jobs:stream", {name: plain[name] for name in ("job_id", "task", "payload")})


class Recording:
    """Every command that the server runs, also those inside scripts, as MONITOR shows them.

    `with Recording(raw) as seen: …` and then `seen.on("job:x")`: the commands on a key, in order.
    """

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self.commands: list[list[str]] = []

    def __enter__(self) -> Self:
        # A script that the server does not know yet would be sent twice.
        for script in SCRIPTS.values():
            self._raw.call("SCRIPT", "LOAD", script.source)
        self._monitor = self._raw.plain.monitor()
        self._monitor.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.call("ECHO", OVER)
        while True:
            seen = cast("dict[str, str]", self._monitor.next_command())
            command = seen["command"].split(" ")
            if command == ["ECHO", OVER]:
                break
            self.commands.append(command)
        self._monitor.__exit__(None, None, None)

    @property
    def scripts(self) -> int:
        """How many scripts ran."""
        return sum(command[0].upper() == "EVALSHA" for command in self.commands)

    def on(self, *keys: str) -> list[str]:
        """`NAME key …` of every command on one of the keys; scripts themselves left out."""
        return [
            " ".join(command)
            for command in self.commands
            if len(command) > 1 and command[1] in keys and not command[0].upper().startswith("EVAL")
        ]
