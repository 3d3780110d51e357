"""A gateway with jobs and an empty route: `python -m bench.gateway_server URL FD`.

The cost of a route is its CPU beyond that of the empty route in the same process. The empty route
is a POST too, and reads its body.
"""

import asyncio
import socket
import sys

import uvloop

from jobwire.api.operation import Operation
from jobwire.gateway import route
from jobwire.gateway.app import Gateway
from jobwire.gateway.feature import Feature
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.server import HttpServer
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.sse_connections import SseConnections
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.follow import Follower
from jobwire.systems.jobs.http import feature
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection


async def empty(request: HttpRequest) -> Reply:
    await request.body()
    return Reply(b"{}")


async def serve(url: str, listening: socket.socket) -> None:
    settings = GatewaySettings()
    streams = SseConnections(settings)
    follower = Follower(StreamsKeys())
    async with Connection.open(url) as connection, follower.running(url):
        jobs = feature(connection, StreamsSettings(max_queue=10**9), follower, streams)
        operation = Operation("POST", "/empty", "submit", "empty", tag="bench")
        extra = Feature(name="bench", routes=[route.serve(operation, empty)])
        gateway = Gateway(settings, [jobs, extra], streams, version="bench")
        await HttpServer(gateway, settings).run_until_stopped(listening)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2]))))
    asyncio.set_event_loop(None)
