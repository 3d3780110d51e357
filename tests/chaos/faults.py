"""One small function per fault: it starts, lasts as long as planned, and undoes itself.

Called by the runner with the faults of the plan. None of them checks anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from redis import Redis, RedisError

from tests.chaos.fleet import LEASE_S, Fleet, Seat
from tests.chaos.plan import Fault
from tests.support import wait_until
from tests.support.servers import plain_client
from tests.support.streams import runs


async def cause(fleet: Fleet, fault: Fault) -> None:
    """Cause one fault and wait until it is over."""
    await asyncio.sleep(fault.after_s)
    if fault.kind in _AT_SEATS:
        seat = fleet.seats[fault.seat % len(fleet.seats)]
        program = seat.program
        seat.faults += 1
        fleet.note_fault(seat, program)
        await _AT_SEATS[fault.kind](seat, fault)
        seat.faults += 1
        fleet.note_fault(seat, program)
    else:
        await _AT_SERVER[fault.kind](fleet, fault)


def heal(fleet: Fleet) -> None:
    """Cancel the faults that wait for a command."""
    for seat in fleet.seats:
        seat.proxy.heal()


# ── programs, and their connections to the server ─────────────────────────────────────────────────


async def _kill(seat: Seat, fault: Fault) -> None:
    seat.program.kill()


async def _freeze(seat: Seat, fault: Fault) -> None:
    program = seat.program
    program.freeze()
    await _last(fault)
    program.thaw()


async def _terminate(seat: Seat, fault: Fault) -> None:
    seat.program.terminate()


async def _cut(seat: Seat, fault: Fault) -> None:
    seat.proxy.cut()


async def _cut_one(seat: Seat, fault: Fault) -> None:
    seat.proxy.cut_one(fault.size)


async def _refuse(seat: Seat, fault: Fault) -> None:
    seat.proxy.refuse()
    await _last(fault)
    seat.proxy.heal()


async def _half_open(seat: Seat, fault: Fault) -> None:
    seat.proxy.silence()
    await _last(fault)
    # The swallowed bytes are gone, so these connections cannot be used again.
    seat.proxy.heal()
    seat.proxy.cut()


async def _delay(seat: Seat, fault: Fault) -> None:
    seat.proxy.delay_s = fault.size / 1000
    await _last(fault)
    seat.proxy.heal()


async def _cut_in_command(seat: Seat, fault: Fault) -> None:
    seat.proxy.cut_at(runs(fault.script), fault.size)


async def _lose_reply(seat: Seat, fault: Fault) -> None:
    seat.proxy.cut_reply(runs(fault.script))


# ── the server ───────────────────────────────────────────────────────────────────────────────────


async def _server_killed(fleet: Fleet, fault: Fault) -> None:
    fleet.server.kill()
    await asyncio.to_thread(fleet.server.start)


async def _server_stopped(fleet: Fleet, fault: Fault) -> None:
    await asyncio.to_thread(fleet.server.stop)
    await _last(fault)
    await asyncio.to_thread(fleet.server.start)


async def _server_frozen(fleet: Fleet, fault: Fault) -> None:
    os.kill(fleet.server.pid, signal.SIGSTOP)
    await _last(fault)
    os.kill(fleet.server.pid, signal.SIGCONT)


async def _write_torn(fleet: Fleet, fault: Fault) -> None:
    """The disk takes a few more bytes: the server dies with half a command written."""
    files = fleet.server.data_dir.glob("appendonlydir/*.incr.aof")
    size = max(file.stat().st_size for file in files) + fault.size
    resource.prlimit(fleet.server.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    if await asyncio.to_thread(fleet.server.wait, 5.0) is None:
        fleet.server.kill()
    await asyncio.to_thread(fleet.server.start)


async def _memory_full(fleet: Fleet, fault: Fault) -> None:
    async with _full(fleet):
        await _last(fault)


async def _read_only(fleet: Fleet, fault: Fault) -> None:
    async with _no_writes(fleet):
        await _last(fault)


async def _start_on_full(fleet: Fleet, fault: Fault) -> None:
    """A worker dies, and the next one starts while the server is full: it has to serve."""
    seat = _a_worker(fleet, fault)
    async with _full(fleet):
        began = await _restarted(fleet, seat)
        if not began:
            wrong = f"{seat.name} did not start on a full server: {seat.program.output[-500:]}"
            fleet.history.failed_starts.append(wrong)


async def _start_on_read_only(fleet: Fleet, fault: Fault) -> None:
    """The same while the server refuses writes; the worker may retry until it accepts them."""
    seat = _a_worker(fleet, fault)
    async with _no_writes(fleet):
        fleet.note_fault(seat, seat.program)
        seat.program.kill()
        await _last(fault)


async def _clock_jumps(fleet: Fleet, fault: Fault) -> None:
    """The server's clock is set forward or back for a while; libfaketime, where present."""
    if fleet.clock is None:
        return
    began_ms = time.time() * 1000
    seconds = (1 if fault.size % 2 else -1) * max(1, round(fault.leases * LEASE_S))
    fleet.clock.jump(seconds)
    await _last(fault)
    fleet.clock.jump(-seconds)
    fleet.history.jumps.append((began_ms, time.time() * 1000))


def _a_worker(fleet: Fleet, fault: Fault) -> Seat:
    workers = [seat for seat in fleet.seats if seat.is_worker]
    return workers[fault.seat % len(workers)]


async def _restarted(fleet: Fleet, seat: Seat) -> bool:
    """Kill the worker and wait until its successor logs that it serves. Another fault at the same
    worker meanwhile proves nothing, and counts as started."""
    before, deaths, faults = seat.program, seat.deaths, seat.faults
    fleet.note_fault(seat, before)
    before.kill()

    def serves() -> bool:
        fresh = seat.program is not before and seat.deaths == deaths + 1
        return fresh and "worker with" in seat.program.output

    try:
        await wait_until(lambda: serves() or seat.deaths > deaths + 1, timeout_s=20)
    except AssertionError:
        return seat.faults != faults
    return serves() or seat.faults != faults


@contextlib.asynccontextmanager
async def _full(fleet: Fleet) -> AsyncGenerator[None]:
    began_ms = time.time() * 1000
    await asyncio.to_thread(_on_server, fleet, lambda plain: plain.config_set("maxmemory", "1mb"))
    try:
        yield
    finally:
        await asyncio.to_thread(_on_server, fleet, lambda plain: plain.config_set("maxmemory", "0"))
        fleet.history.full.append((began_ms, time.time() * 1000))


@contextlib.asynccontextmanager
async def _no_writes(fleet: Fleet) -> AsyncGenerator[None]:
    """As in a failover: the server is a replica of a primary that does not exist."""
    await asyncio.to_thread(_on_server, fleet, lambda plain: plain.replicaof("127.0.0.1", "1"))
    try:
        yield
    finally:
        await asyncio.to_thread(_on_server, fleet, lambda plain: plain.replicaof("NO", "ONE"))


async def _scripts_forgotten(fleet: Fleet, fault: Fault) -> None:
    await asyncio.to_thread(_on_server, fleet, lambda plain: plain.script_flush())


async def _clients_dropped(fleet: Fleet, fault: Fault) -> None:
    await asyncio.to_thread(
        _on_server, fleet, lambda plain: plain.client_kill_filter(_type="normal")
    )


def _on_server(fleet: Fleet, what: Callable[[Redis], object]) -> None:
    with plain_client(fleet.server, "chaos-faults") as plain:
        try:
            what(plain)
        except RedisError as error:
            raise RuntimeError(f"a command of a fault failed: {error!r}") from error


async def _last(fault: Fault) -> None:
    await asyncio.sleep(fault.leases * LEASE_S)


_AT_SEATS: Final[dict[str, Callable[[Seat, Fault], Awaitable[None]]]] = {
    "kill": _kill,
    "freeze": _freeze,
    "terminate": _terminate,
    "cut": _cut,
    "cut_one": _cut_one,
    "refuse": _refuse,
    "half_open": _half_open,
    "delay": _delay,
    "cut_in_command": _cut_in_command,
    "lose_reply": _lose_reply,
}
_AT_SERVER: Final[dict[str, Callable[[Fleet, Fault], Awaitable[None]]]] = {
    "server_killed": _server_killed,
    "server_stopped": _server_stopped,
    "server_frozen": _server_frozen,
    "write_torn": _write_torn,
    "memory_full": _memory_full,
    "read_only": _read_only,
    "scripts_forgotten": _scripts_forgotten,
    "clients_dropped": _clients_dropped,
    "start_on_full": _start_on_full,
    "start_on_read_only": _start_on_read_only,
    "clock_jumps": _clock_jumps,
}
