"""POST load: `python -m bench.gateway_load PORT PATH BODY CONNECTIONS SECONDS`.

Prints the number of responses; all must be 2xx. Each connection waits for the response before the
next request. It uses raw sockets on uvloop, so that the load is cheap.
"""

import asyncio
import json
import re
import sys
import time
from typing import Final, cast

import uvloop

_LENGTH: Final = re.compile(rb"content-length: (\d+)\r\n")


class Poster(asyncio.Protocol):
    """One connection with one request in flight."""

    def __init__(self, request: bytes, until_s: float) -> None:
        self._request = request
        self._until_s = until_s
        self._rest = b""
        self.responses = 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        head, gap, body = self._rest.partition(b"\r\n\r\n")
        if not gap:
            return
        length = _LENGTH.search(head + b"\r\n")
        if not head.startswith(b"HTTP/1.1 2") or length is None:
            self.done.set_exception(RuntimeError(self._rest[:500].decode()))
            return
        if len(body) < int(length[1]):
            return
        self._rest = b""
        self.responses += 1
        if time.monotonic() < self._until_s:
            self._transport.write(self._request)
        else:
            self._transport.close()
            self.done.set_result(None)


async def main(port: int, path: str, body: bytes, connections: int, seconds: float) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: bench\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    until_s = time.monotonic() + seconds
    posters = [Poster(head.encode() + body, until_s) for _ in range(connections)]
    loop = asyncio.get_running_loop()
    for poster in posters:
        await loop.create_connection(lambda poster=poster: poster, "127.0.0.1", port)
    await asyncio.gather(*(poster.done for poster in posters))
    print(json.dumps({"responses": sum(poster.responses for poster in posters)}))


if __name__ == "__main__":
    port, path, body, connections, seconds = sys.argv[1:]
    uvloop.run(main(int(port), path, body.encode(), int(connections), float(seconds)))
