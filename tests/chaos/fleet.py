"""The server, gateways and workers of a chaos run: real processes that are kept running.

Each program has a seat with its own proxy before the server, so that it can be cut off alone. A
dead program is started again, as an init system would do. Nothing outlives the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

from jobwire.local import LocalValkey, free_port
from tests.chaos import handlers
from tests.chaos.history import History
from tests.support import Program, Proxy, wait_until
from tests.support.faketime import server_clock

LEASE_S: Final = 1.0
MAX_DELIVERIES: Final = 3
SLOTS: Final = (1, 4, 8)
GATEWAYS: Final = 2


class Seat:
    """One program, its proxy, and its successors after a crash."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        proxy: Proxy,
        env: dict[str, str],
        tree: Path | None = None,
    ) -> None:
        """`tree` is the source tree of another release."""
        self.name = name
        self.tree = tree
        self.pids: set[int] = set()
        """Of this program and its predecessors."""
        self.is_worker = name.startswith("worker")
        self.proxy = proxy
        self.deaths = 0
        self.faults = 0
        """Grows with every fault at this program, at its begin and at its end."""
        self._arguments = arguments
        self.env = env
        self.program = self._start()

    def _start(self) -> Program:
        if self.tree is None:
            program = Program(*self._arguments, env=self.env)
        else:
            # Not a fork of this release.
            path = os.pathsep.join((str(self.tree / "src"), str(self.tree)))
            env = {**self.env, "PYTHONPATH": path}
            program = Program(*self._arguments, env=env, cwd=self.tree, cold=True)
        self.pids.add(program.pid)
        return program

    @property
    def ready_line(self) -> str:
        return "worker with" if self.is_worker else "gateway on http"

    def replace_if_dead(self) -> None:
        if self.program.exit_code is not None:
            self.deaths += 1
            self.program.close()
            self.program = self._start()
        self.proxy.forget_seen()

    def close(self) -> None:
        self.program.close()
        self.proxy.stop()


class Fleet:
    """The server, the gateways and the workers of a run."""

    def __init__(self, folder: Path, history: History) -> None:
        self.history = history
        self.effects = folder / "effects"
        self.effects.touch()
        # `always`: every answered write is on disk. With `everysec` the server itself may lose a
        # second of writes (docs/durability.md).
        self.clock = server_clock(folder)
        self.server = LocalValkey(
            folder / "valkey",
            admin=True,
            extra=["appendfsync always"],
            program=self.clock.program if self.clock else None,
        )
        self.settings: dict[str, str] = {}
        """Further variables of the programs."""
        self.ports: list[int] = []
        self.seats: list[Seat] = []
        self._tending = True
        self._replicas: list[LocalValkey] = []

    def also_stop(self, replica: LocalValkey) -> None:
        """A further server, which ends with the fleet."""
        self._replicas.append(replica)

    def move_to(self, server: LocalValkey) -> None:
        """Another server is the primary from now on; programs reach it at the old address."""
        self.server = server
        for seat in self.seats:
            seat.proxy.upstream = server.port
            seat.proxy.cut()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Start the server and the programs, and restart programs that die."""
        with self.server:
            async with self._running_programs():
                yield

    @contextlib.asynccontextmanager
    async def _running_programs(self) -> AsyncGenerator[None]:
        try:
            for number in range(GATEWAYS):
                self.ports.append(free_port())
                args = ("gateway", "--port", str(self.ports[-1]))
                self.seats.append(self._seat(f"gateway {number}", args))
            self._add_worker(SLOTS[0])
            await self._all_ready()
            tending = asyncio.create_task(self._tend())
            try:
                yield
            finally:
                self._tending = False
                await tending
        finally:
            for seat in self.seats:
                seat.close()
            for replica in self._replicas:
                replica.stop()

    async def grow(self) -> None:
        """Start the further workers: from now on jobs may overtake each other."""
        for slots in SLOTS[1:]:
            self._add_worker(slots)
        await self._all_ready()

    def note_fault(self, seat: Seat, program: Program) -> None:
        """A fault hits a program: if it is a worker, its jobs may be reclaimed."""
        if seat.is_worker:
            self.history.worker_faults.append((time.time() * 1000, str(program.pid)))

    async def restart_all(self) -> None:
        """Restart all programs with the settings of now, one after the other, as a deployment does.
        One that dies before its turn is started with them, too."""
        for seat in self.seats:
            seat.env = {**seat.env, **self.settings}
        for seat in self.seats:
            self.note_fault(seat, former := seat.program)
            former.terminate()
            await wait_until(
                lambda seat=seat, former=former: (
                    seat.program is not former and seat.ready_line in seat.program.output
                ),
                f"{seat.name} to start again",
                timeout_s=60,
            )

    async def stop_programs(self) -> list[str]:
        """SIGTERM to all; returns the programs that did not end correctly."""
        self._tending = False
        programs = [seat.program for seat in self.seats]
        for program in programs:
            program.terminate()
        wrong: list[str] = []
        for seat in self.seats:
            try:
                await wait_until(lambda seat=seat: seat.program.exit_code is not None, seat.name)
            except AssertionError:
                wrong.append(f"{seat.name} did not stop")
                continue
            if code := seat.program.exit_code:
                last = seat.program.output[-1000:]
                wrong.append(f"{seat.name} stopped with {code}: {last}")
        return wrong

    def _add_worker(self, slots: int) -> None:
        args = ("worker", "tests.chaos.handlers:app", "--slots", str(slots))
        self.seats.append(self._seat(f"worker of {slots}", args, slots))

    async def _all_ready(self) -> None:
        for seat in self.seats:
            await asyncio.to_thread(seat.program.wait_for_line, seat.ready_line, timeout_s=60)

    async def _tend(self) -> None:
        while self._tending:
            for seat in self.seats:
                seat.replace_if_dead()
            await asyncio.sleep(0.05)

    def _seat(self, name: str, args: Sequence[str], slots: int = 0) -> Seat:
        proxy = Proxy(self.server.port).start()
        return self._seat_at(name, args, slots, proxy, proxy.url(self.server.url))

    def _seat_at(
        self, name: str, args: Sequence[str], slots: int, proxy: Proxy, server_url: str
    ) -> Seat:
        env = {
            # Settings of the test run must not reach the programs.
            **{each: "" for each in os.environ if each.startswith("JOBWIRE_")},
            "JOBWIRE_VALKEY_URL": server_url,
            "JOBWIRE_LOGGING_LEVEL": "warning",
            "JOBWIRE_WORKER_LEASE": f"{round(LEASE_S * 1000)}ms",
            "JOBWIRE_WORKER_DRAIN": "1s",
            "JOBWIRE_JOBS_MAX_DELIVERIES": str(MAX_DELIVERIES),
            "JOBWIRE_JOBS_TASKS": ",".join(handlers.app.handlers),
            **self.settings,
            handlers.EFFECTS: str(self.effects),
            handlers.SLOTS: str(slots),
        }
        tree = self._tree(len(self.seats))
        return Seat(name, ("-m", "jobwire", *args), proxy, env, tree)

    def _tree(self, number: int) -> Path | None:
        """The source tree of a program, by its number; None: this one."""
        del number
        return None
