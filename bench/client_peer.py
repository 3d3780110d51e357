"""One client in its own process: `python -m bench.client_peer NAME CALLERS CALLS URL`.

Every client calls EVALSHA of the same script with the same keys, on uvloop.
"""

import asyncio
import hashlib
import importlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

import uvloop

from jobwire.valkey import Connection, Script

SOURCE: Final = """
redis.call('HSET', KEYS[1], 'status', ARGV[1])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', '100', '*', 'type', ARGV[1])
redis.call('EXPIRE', KEYS[1], 60)
redis.call('EXPIRE', KEYS[2], 60)
return 'ok'
"""
SHA: Final = hashlib.sha1(SOURCE.encode(), usedforsecurity=False).hexdigest()
KEYS: Final = ("bench:hash", "bench:events")
Call = Callable[[], Awaitable[object]]


async def ours(url: str) -> Call:
    script = Script("bench", "", SOURCE, (), (), (), ())
    connection = await Connection.open(url, scripts=[script])
    return lambda: connection.run(script, KEYS, ("running",))


async def redis_py(url: str) -> Call:
    # Imported by name: the peers are not installed for tests.
    client = importlib.import_module("redis.asyncio").Redis.from_url(
        url.replace("valkey://", "redis://"), protocol=3
    )
    await client.script_load(SOURCE)
    return lambda: client.evalsha(SHA, 2, *KEYS, "running")


async def valkey_py(url: str) -> Call:
    client = importlib.import_module("valkey.asyncio").Valkey.from_url(url, protocol=3)
    await client.script_load(SOURCE)
    return lambda: client.evalsha(SHA, 2, *KEYS, "running")


async def glide(url: str) -> Call:
    library = importlib.import_module("glide")
    parts = urlsplit(url)
    client = await library.GlideClient.create(
        library.GlideClientConfiguration(
            [library.NodeAddress(parts.hostname, parts.port)],
            credentials=library.ServerCredentials(parts.password, parts.username),
        )
    )
    await client.custom_command(["SCRIPT", "LOAD", SOURCE])
    return lambda: client.custom_command(["EVALSHA", SHA, "2", *KEYS, "running"])


PEERS: Final[dict[str, Callable[[str], Awaitable[Call]]]] = {
    "jobwire": ours,
    "redis-py": redis_py,
    "valkey-py": valkey_py,
    "glide": glide,
}


async def measure(peer: str, callers: int, calls: int, url: str) -> dict[str, float]:
    call = await PEERS[peer](url)

    async def caller() -> None:
        for _ in range(calls // callers):
            await call()

    async def all_callers() -> None:
        await asyncio.gather(*(caller() for _ in range(callers)))

    await all_callers()
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    await all_callers()
    return {
        "client_us": (time.process_time() - cpu_s) / calls * 1e6,
        "per_s": calls / (time.perf_counter() - wall_s),
    }


if __name__ == "__main__":
    _, name, callers, calls, url = sys.argv
    print(json.dumps(uvloop.run(measure(name, int(callers), int(calls), url))))
