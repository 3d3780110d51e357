"""Leak checks after each test: keys without TTL, clients, settings, tasks.

The check runs after every test that used the `valkey` fixture, when the test's own fixtures
have been closed. A key may stay without TTL only if its wire declares it (`PERMANENT`, a list of
glob patterns in `jobwire.systems.<wire>.contract`).
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, cast

from redis import Redis

from tests.support.wait import wait_until_sync

# Clients of the test support itself.
OBSERVER: Final = "tests-observer"
# How long a closed socket or an ending task may take to be gone.
_GRACE_S: Final = 15.0
# The end of the names of a connection's sockets for blocking reads.
_READER: Final = "-own"
_NAME: Final = re.compile(r" name=(\S*) ")


@dataclass(frozen=True, slots=True)
class Before:
    """The state of the server when the test began."""

    clients: Counter[str]
    settings: dict[str, str]


@functools.cache
def permanent_patterns() -> Sequence[str]:
    """The permanent keys of all wires, as their contracts declare them."""
    patterns: list[str] = []
    try:
        wires = importlib.import_module("jobwire.systems")
    except ModuleNotFoundError:
        return patterns
    for wire in pkgutil.iter_modules(wires.__path__):
        try:
            contract = importlib.import_module(f"jobwire.systems.{wire.name}.contract")
        except ModuleNotFoundError as error:
            if error.name != f"jobwire.systems.{wire.name}.contract":
                raise
        else:
            patterns.extend(getattr(contract, "PERMANENT", ()))
    return patterns


def snapshot(observer: Redis) -> Before:
    """Record the state of the server."""
    return Before(_clients(observer), _settings(observer))


def leaks(observer: Redis, before: Before, patterns: Iterable[str]) -> list[str]:
    """The leaks, one line each; restores changed settings."""
    return [
        *lasting_keys(observer, list(patterns)),
        *open_clients(observer, before.clients),
        *_changed_settings(observer, before.settings),
    ]


async def lingering_tasks(before: set[asyncio.Task[object]]) -> list[str]:
    """Tasks of this loop that outlived their test."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _GRACE_S
    is_last = False
    while tasks := asyncio.all_tasks() - before - {asyncio.current_task()}:
        if is_last:
            return [f"task {task.get_name()} still runs {task.get_coro()}" for task in tasks]
        is_last = loop.time() > deadline
        await asyncio.wait(tasks, timeout=0.05)
    return []


def lasting_keys(observer: Redis, patterns: Sequence[str]) -> list[str]:
    keys = list(cast("Iterator[str]", observer.scan_iter(count=1000)))
    if not keys:
        return []
    with observer.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.pttl(key)
        times = cast("list[int]", pipeline.execute())
    return [
        f"key {key} has no TTL and is on no wire's permanent list"
        for key, time_left in zip(keys, times, strict=True)
        if time_left == -1 and not any(fnmatchcase(key, pattern) for pattern in patterns)
    ]


def open_clients(observer: Redis, before: Counter[str]) -> list[str]:
    if any(name.startswith("jobwire-") for name in before):
        # A worker that serves several tests connects its renewer with the first long job.
        before = before + Counter({"jobwire-lease-renewer": 1})

    def more() -> Counter[str]:
        found = _clients(observer) - before
        # A program that serves several tests opens the sockets of its readers anew after the server
        # was emptied behind a test: this one may have begun between.
        return Counter(
            {name: count for name, count in found.items() if not _is_reader(name, before)}
        )

    def gone() -> bool:
        return not more()

    try:
        wait_until_sync(gone, timeout_s=_GRACE_S)
    except AssertionError:
        return [f"{count} open connection(s) named {name!r}" for name, count in more().items()]
    return []


def _is_reader(name: str, before: Counter[str]) -> bool:
    program = name.removesuffix(_READER)
    return program != name and program in before


def _clients(observer: Redis) -> Counter[str]:
    # In two words, here and below, a command is none that the client parses the reply of, which
    # would be dear: this runs twice for each of some thousand tests.
    names = _NAME.findall(cast("str", observer.execute_command("CLIENT", "LIST")))
    return Counter(name for name in names if name != OBSERVER)


def _settings(observer: Redis) -> dict[str, str]:
    return cast("dict[str, str]", observer.execute_command("CONFIG", "GET", "*"))


def _changed_settings(observer: Redis, before: dict[str, str]) -> list[str]:
    after = _settings(observer)
    changed = [name for name, value in before.items() if after.get(name) != value]
    for name in changed:
        observer.config_set(name, before[name])
    return [f"setting {name} was {before[name]!r}, now {after.get(name)!r}" for name in changed]
