"""Commands that one node of a Cluster sends on to another with ASK (G-11).

While a slot is moved key by key, a node that lacks a key answers `ASK slot host:port`: this
command, and no other, is for the other node. It goes there behind ASKING, in one write, in the
order of the replies. Used by the connection; nothing is repeated.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from jobwire.valkey.config import Config
from jobwire.valkey.dial import dial
from jobwire.valkey.errors import NotSent, Unavailable, ValkeyError
from jobwire.valkey.resp_socket import Arg, RepeatableCall, RespSocket, fail_waiter, pack

_ASKING: Final = pack(("ASKING",))


class AskedNodes:
    def __init__(
        self, config: Config, name: str, setup: Callable[[], Sequence[tuple[Arg, ...]]]
    ) -> None:
        """`setup` has the commands that run first on a socket: the scripts are loaded by node."""
        self._config = config
        self._setup = setup
        self._name = name
        self._sockets: dict[str, RespSocket] = {}
        self._waiting: dict[str, list[RepeatableCall]] = {}
        self._dialing: dict[str, asyncio.Task[None]] = {}

    def send(self, call: RepeatableCall, address: str) -> None:
        """Send a call to the node that ASK has named."""
        sock = self._sockets.get(address)
        if sock is not None and not sock.closed.done():
            _write(sock, [call])
            return
        self._waiting.setdefault(address, []).append(call)
        if address not in self._dialing:
            task = asyncio.create_task(self._dial(address), name=f"{self._name}: {address}")
            self._dialing[address] = task

    async def _dial(self, address: str) -> None:
        error: ValkeyError = NotSent("the connection was closed")
        try:
            sock, _ = await dial(self._config.of_node(address), self._name, self._setup())
            self._sockets[address] = sock
            _write(sock, self._waiting.pop(address))
        except ValkeyError as failed:
            error = Unavailable(f"the node that has the key does not answer: {failed}")
        finally:
            del self._dialing[address]
            for call in self._waiting.pop(address, ()):
                fail_waiter(call, error)

    async def close(self) -> None:
        """Close the sockets; commands that wait for one are not sent."""
        for task in tuple(self._dialing.values()):
            task.cancel()
        await asyncio.gather(*self._dialing.values(), return_exceptions=True)
        for sock in self._sockets.values():
            await sock.close("the connection was closed here")


def _write(sock: RespSocket, calls: list[RepeatableCall]) -> None:
    loop = asyncio.get_running_loop()
    live = [call for call in calls if not call.done()]
    packed = [part for call in live for part in (_ASKING, call.packed)]
    sock.write(packed, [waiter for call in live for waiter in (loop.create_future(), call)])
