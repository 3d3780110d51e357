"""A lone EVALSHA of an empty script, one at a time: the least that a recorded step can cost.

python -m bench.peers.round_trip_peer URL CALLS    prints CPU of a call: through our connection,
                                                   through a minimal protocol, and of the server
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final, cast
from urllib.parse import unquote, urlsplit

import uvloop

from bench.peers.durable_peer import server_us
from jobwire.valkey import Connection, Script

_EMPTY: Final = Script("empty", "", "return 1", (), (), (), ())


class _Minimal(asyncio.Protocol):
    """Sends a command and returns what comes next, unread."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self._waiter.set_result(data)

    async def call(self, *words: bytes) -> bytes:
        self._waiter: asyncio.Future[bytes] = self._loop.create_future()
        packed = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        self._transport.write(b"*%d\r\n%s" % (len(words), packed))
        return await self._waiter


async def _client_us(call: Callable[[], Awaitable[object]], count: int) -> float:
    for _ in range(100):
        await call()
    cpu_s = time.process_time()
    for _ in range(count):
        await call()
    return (time.process_time() - cpu_s) * 1e6 / count


async def main(url: str, count: int) -> None:
    async with Connection.open(url) as connection:
        await connection.load_scripts([_EMPTY])
        us, calls = await server_us(connection)
        ours_us = await _client_us(lambda: connection.run(_EMPTY), count)
        after_us, after = await server_us(connection)
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    loop = asyncio.get_running_loop()
    transport, minimal = await loop.create_connection(_Minimal, parts.hostname, parts.port)
    user, password = parts.username or "default", unquote(parts.password or "")
    assert (await minimal.call(b"AUTH", user.encode(), password.encode())) == b"+OK\r\n"
    sha = _EMPTY.sha.encode()
    minimal_us = await _client_us(lambda: minimal.call(b"EVALSHA", sha, b"0"), count)
    transport.close()
    row = {
        "client_us": ours_us,
        "minimal_us": minimal_us,
        "server_us": (after_us - us) / (after - calls),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
