"""Ten thousand event streams: `python -m bench.watchers_client PORT`.

Reads job ids from stdin, one per line, and opens one stream each. Prints `open` when each has
its first event, and at the end of stdin the delays of all later `log` events as JSON.
"""

import asyncio
import json
import re
import sys
import time
from typing import Final, cast

import uvloop

_SENT: Final = re.compile(rb'event: log\ndata: \{[^\n]*"sent":([0-9.]+)')
_AT_ONCE: Final = 200


class Reader(asyncio.Protocol):
    """One open stream."""

    def __init__(self, delays_s: list[float], limit: asyncio.Semaphore) -> None:
        self._delays_s = delays_s
        self._limit = limit
        self.opened = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if not self.opened and b"event: queued" in data:
            self.opened = True
            self._limit.release()
        now_s = time.monotonic()
        for sent in _SENT.findall(data):
            self._delays_s.append(now_s - float(sent))


async def main(port: int) -> None:
    loop = asyncio.get_running_loop()
    limit = asyncio.Semaphore(_AT_ONCE)
    delays_s: list[float] = []
    readers: list[Reader] = []
    job_ids = [line.strip() for line in iter(sys.stdin.readline, "\n")]
    for job_id in job_ids:
        await limit.acquire()
        reader = Reader(delays_s, limit)
        await loop.create_connection(lambda reader=reader: reader, "127.0.0.1", port)
        request = f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
        reader.transport.write(request.encode())
        readers.append(reader)
    while not all(reader.opened for reader in readers):
        await asyncio.sleep(0.05)
    delays_s.clear()
    print("open", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    print(json.dumps(delays_s), flush=True)
    for reader in readers:
        reader.transport.abort()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
