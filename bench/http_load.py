"""HTTP load: `python -m bench.http_load PORT PATH CONNECTIONS SECONDS`.

Prints the number of responses; all must be 200. Each connection waits for the response before the
next request, like `wrk`. It uses raw sockets on uvloop, so that the load is cheap.
"""

import asyncio
import json
import sys
import time
from typing import cast

import uvloop


class LoadConnection(asyncio.Protocol):
    """One connection with one request in flight."""

    def __init__(self, request: bytes, until_s: float) -> None:
        self.request = request
        self.until_s = until_s
        self.responses = 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        # Responses are small: each arrives whole, or its head without its two bytes of body.
        if data.startswith(b"HTTP/1.1 200"):
            self.responses += 1
        elif data != b"{}":
            self.done.set_exception(RuntimeError(data[:300].decode()))
            return
        if data.endswith(b"{}"):
            if time.monotonic() < self.until_s:
                self.transport.write(self.request)
            else:
                self.transport.close()
                self.done.set_result(None)


async def main(port: int, path: str, connections: int, seconds: float) -> None:
    request = (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: bench\r\n"
        "Accept: */*\r\nConnection: keep-alive\r\n\r\n"
    ).encode()
    until_s = time.monotonic() + seconds
    clients = [LoadConnection(request, until_s) for _ in range(connections)]
    loop = asyncio.get_running_loop()
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)
    await asyncio.gather(*(client.done for client in clients))
    print(json.dumps({"responses": sum(client.responses for client in clients)}))


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
