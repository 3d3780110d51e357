"""One run: jobs without faults, faults under load, recovery, an emptied server, the check."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from tests.chaos import faults
from tests.chaos.checker import Violation, check_history
from tests.chaos.failover import fail_over
from tests.chaos.fleet import LEASE_S, MAX_DELIVERIES, Fleet
from tests.chaos.history import History
from tests.chaos.inspector import Inspector, Place, empty, runs_of
from tests.chaos.load import Caller, seen_by
from tests.chaos.plan import AT_PROGRAMS, AT_SERVER, KINDS
from tests.chaos.plan import faults as planned
from tests.support import leaks, wait_until
from tests.support.servers import plain_client

CALLERS: Final = 3
BURST: Final = 500
"""Short-lived jobs that expire together."""
LONG_S: Final = 20.0
"""Runs of this length have short-lived jobs."""
LEAST: Final = 6
"""The least number of kinds of faults in a run, even if it then takes longer."""
QUIET_S: Final = float(os.environ.get("CHAOS_QUIET_S", "90"))
"""How long all jobs may take to end after the last fault."""


@dataclass(frozen=True, slots=True)
class Survival:
    """How much of one kind a failover lost."""

    what: str
    acknowledged: int
    lost: int


@dataclass(slots=True)
class Outcome:
    """The result of a run."""

    seed: int
    history: History
    faults: Counter[str] = field(default_factory=Counter[str])
    deaths: int = 0
    quiet_after_s: float = 0.0
    violations: list[Violation] = field(default_factory=list[Violation])
    survived: list[Survival] = field(default_factory=list[Survival])
    """After failovers: what was acknowledged, and what of it was lost."""
    notes: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        history = self.history
        ends = Counter(job.status for job in history.jobs.values())
        seen = Counter(
            jobs=len(history.accepted),
            runs=len(history.runs),
            answers=len(history.answers),
            watchers=len(history.watches),
        )
        lines = [
            f"seed {self.seed}: {_listed(seen)}",
            f"ended: {_listed(ends)}; quiet {self.quiet_after_s:.1f} s after the last",
            f"faults: {_listed(self.faults)}; {self.deaths} programs died",
        ]
        lines += [f"{row.what}: {row.acknowledged}, lost {row.lost}" for row in self.survived]
        lines += self.notes
        for rule, count in Counter(each.rule for each in self.violations).items():
            first = [each.what for each in self.violations if each.rule == rule][:3]
            lines.append(f"{rule} is broken {count} time(s), as in:")
            lines += [f"    {what}" for what in first]
        return "\n".join(lines)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


async def chaos(folder: Path, seed: int, seconds: float, kinds: Sequence[str] = KINDS) -> Outcome:
    """One whole run; `kinds` are the faults that may happen."""
    return await run_on(Fleet(folder, new_history()), folder, seed, seconds, kinds)


def new_history() -> History:
    return History(max_deliveries=MAX_DELIVERIES, lease_ms=1000 * LEASE_S)


async def run_on(
    fleet: Fleet, folder: Path, seed: int, seconds: float, kinds: Sequence[str]
) -> Outcome:
    """The same on a fleet of the caller."""
    history = fleet.history
    outcome = Outcome(seed, history)
    async with fleet.running():
        with plain_client(fleet.server, leaks.OBSERVER) as plain:
            inspector = Inspector(Place(plain))
            await Caller("calm", seed, fleet.ports[:1], history).in_line(20)
            await fleet.grow()
            await _through_the_faults(fleet, inspector, outcome, seconds, kinds)
            await collect(fleet, inspector, history)
        if seconds >= LONG_S:
            history.failed_over += await fail_over(fleet, folder)
        with plain_client(fleet.server, leaks.OBSERVER) as plain:
            await asyncio.to_thread(empty, plain)
            await _after_the_loss(fleet, history)
            outcome.deaths = sum(seat.deaths for seat in fleet.seats)
            history.left_behind += await fleet.stop_programs()
            history.left_behind += leaks.lasting_keys(plain, leaks.permanent_patterns())
            history.left_behind += leaks.open_clients(plain, Counter())
    outcome.violations = check_history(history)
    return outcome


async def _through_the_faults(
    fleet: Fleet, inspector: Inspector, outcome: Outcome, seconds: float, kinds: Sequence[str]
) -> None:
    """All faults under load, and then the wait until every job has ended."""
    history, over, quiet = outcome.history, asyncio.Event(), asyncio.Event()
    # Short-lived jobs wait for longer than a short run lasts.
    long_enough = seconds >= LONG_S
    share = 0.05 if long_enough else 0.0
    callers = [
        Caller(f"caller{number}", outcome.seed, fleet.ports, history, short_lived=share)
        for number in range(CALLERS)
    ]
    deadline_s = time.monotonic() + seconds

    async def injector(own_kinds: Sequence[str]) -> None:
        for fault in planned(outcome.seed, [kind for kind in own_kinds if kind in kinds]):
            # On a slow machine few faults fit into the time, and few would prove little.
            if time.monotonic() > deadline_s and len(outcome.faults) >= min(LEAST, len(kinds)):
                break
            outcome.faults[fault.kind] += 1
            await faults.cause(fleet, fault)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(inspector.watch_places(history, quiet))
        calling = [tasks.create_task(caller.go_on(over)) for caller in callers]
        if long_enough:
            calling.append(tasks.create_task(callers[0].burst(BURST)))
        injectors = [
            tasks.create_task(injector(own_kinds)) for own_kinds in (AT_PROGRAMS, AT_SERVER)
        ]
        await asyncio.wait([*injectors])
        await asyncio.sleep(max(0.0, deadline_s - time.monotonic()))
        faults.heal(fleet)
        over.set()
        healed_s = time.monotonic()
        # Twice: a caller may still be asking for its last job when all the others have ended.
        await until_settled(inspector)
        if any(not task.done() for task in calling):
            await asyncio.wait(calling, timeout=QUIET_S / 3)
        await until_settled(inspector)
        outcome.quiet_after_s = time.monotonic() - healed_s
        for task in calling:
            task.cancel()
        quiet.set()
    history.watches += [seen_by(watcher) for caller in callers for watcher in caller.watchers]


async def until_settled(inspector: Inspector) -> None:
    async def settled() -> bool:
        return not await asyncio.to_thread(lambda: inspector.unfinished(inspector.listed()))

    with contextlib.suppress(AssertionError):  # the checker reports those that did not end
        await wait_until(settled, timeout_s=QUIET_S)


async def collect(fleet: Fleet, inspector: Inspector, history: History) -> None:
    """Record the state of all jobs at the end."""
    try:
        await wait_until(lambda: not inspector.at_rest(), timeout_s=10)
    except AssertionError:
        history.left_behind += inspector.at_rest()
    history.listed = inspector.listed()
    everyone = dict.fromkeys([*history.accepted.values(), *history.listed])
    history.jobs.update(await inspector.jobs(fleet.ports[0], list(everyone)))
    history.collected_ms = time.time() * 1000
    history.runs += runs_of(fleet.effects)


async def _after_the_loss(fleet: Fleet, history: History) -> None:
    """F9: lost jobs are answered with 404; new jobs run on the workers that were there before."""
    lost = next(iter(history.accepted.values()), "none")
    async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
        for port in fleet.ports:
            site = f"http://127.0.0.1:{port}/v1/jobs"
            gone = await client.get(f"{site}/{lost}")
            if gone.status_code != 404:
                history.emptied.append(f"a lost job was answered with {gone.status_code}")
            body = {"task": "work", "payload": {"steps": 0, "pause_s": 0, "fails": 0}}
            done = await client.post(site, json=body, headers={"prefer": "wait=20"})
            if done.status_code != 200 or done.json()["status"] != "done":
                history.emptied.append(
                    f"a new job was answered with {done.status_code} {done.text}"
                )
