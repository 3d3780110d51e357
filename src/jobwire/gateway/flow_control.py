"""Back-pressure on one connection, in both directions: `connection`, `response_cycle`."""

import asyncio


class FlowControl:
    """Whether the connection reads, and whether it takes more of a response."""

    __slots__ = ("_transport", "_writable", "read_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = False
        # Exists while writing is paused.
        self._writable: asyncio.Event | None = None

    def pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    @property
    def write_paused(self) -> bool:
        return self._writable is not None

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = asyncio.Event()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def drain(self) -> None:
        """Wait until the client has read enough."""
        if self._writable is not None:
            await self._writable.wait()
