"""The fixtures of the suite; see docs/testing.md."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio
from redis import Redis

from jobwire.local import LocalValkey
from jobwire.valkey import Connection
from tests.support import leaks
from tests.support.cluster import Cluster
from tests.support.machine import short_folder
from tests.support.program import Program
from tests.support.proxy import Proxy
from tests.support.sentinel import Trio
from tests.support.servers import Plain, plain_client, redis_7_program
from tests.support.threads import Threads
from tests.support.unique_names import Fresh


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalValkey]:
    """A real server, one for each parallel worker. Emptied after each test.

    Do not stop or kill it: take `own_valkey` for that.
    """
    with LocalValkey(tmp_path_factory.mktemp("valkey"), admin=True) as server:
        yield server


@pytest.fixture(scope="session")
def observer(valkey: LocalValkey) -> Iterator[Redis]:
    """The client of the leak check."""
    with plain_client(valkey, leaks.OBSERVER) as client:
        yield client


@pytest.fixture
def own_logging() -> Iterator[None]:
    """For a test that sets up logging in this process: restored afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    for handler in handlers:
        root.removeHandler(handler)
    yield
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[LocalValkey]:
    """A server for this test alone, to be stopped, killed and started again."""
    with LocalValkey(tmp_path / "valkey", admin=True) as server:
        yield server


@pytest.fixture(scope="session")
def redis7(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalValkey]:
    """Redis 7 as Debian ships it: the oldest supported server."""
    folder = tmp_path_factory.mktemp("redis7")
    program = redis_7_program(folder)
    if program is None:
        pytest.skip("redis-server 7 is not installed (Debian: apt-get install redis-tools)")
    with LocalValkey(folder / "data", admin=True, program=program) as server:
        yield server


@pytest.fixture(scope="session")
def trio_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with Trio(tmp_path_factory.mktemp("trio")) as started:
        yield started


@pytest.fixture
def trio(trio_for_all: Trio) -> Iterator[Trio]:
    """A primary, two replicas and three sentinels. A test may kill or pause the primary and uses
    `@pytest.mark.xdist_group("sentinel")`; afterwards all servers run and are empty."""
    yield trio_for_all
    trio_for_all.heal()


@pytest.fixture(scope="session")
def cluster_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def cluster(cluster_for_all: Cluster) -> Iterator[Cluster]:
    """A Cluster of three primaries with a replica each. A test may move slots, and promote, kill or
    pause nodes, and uses `@pytest.mark.xdist_group("cluster")`; afterwards all run and are
    empty."""
    yield cluster_for_all
    cluster_for_all.heal()


@pytest_asyncio.fixture
async def connection(valkey: LocalValkey) -> AsyncIterator[Connection]:
    """A connection of jobwire, with the rights of its programs."""
    async with Connection.open(valkey.url, name="tests-connection") as opened:
        yield opened


@pytest.fixture
def plain(valkey: LocalValkey) -> Iterator[Plain]:
    """A plain client with all rights: reads the raw wire, plays a foreign program."""
    with plain_client(valkey, "tests-plain") as client:
        yield client


@pytest.fixture
def fresh() -> Fresh:
    """Names that no other test uses."""
    return Fresh()


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """See `short_folder`; `tmp_path` may be too long."""
    with short_folder() as folder:
        yield folder


@pytest.fixture
def proxy(valkey: LocalValkey) -> Iterator[Proxy]:
    """A proxy before the server of this worker."""
    with Proxy(valkey.port) as started:
        yield started


class StartProgram(Protocol):
    """Starts jobwire programs; see `Program`."""

    def __call__(self, *arguments: str | Path, **variables: str) -> Program: ...


@pytest.fixture
def run_program() -> Iterator[StartProgram]:
    """Start Python programs that end with the test; keywords are environment variables."""
    programs: list[Program] = []

    def start(*arguments: str | Path, **variables: str) -> Program:
        programs.append(Program(*arguments, env=variables))
        return programs[-1]

    yield start
    for program in programs:
        program.close()


@pytest.fixture
def server_setting(
    observer: Redis, request: pytest.FixtureRequest
) -> Iterator[Callable[[str, str], None]]:
    """Change a setting of the server for this test only."""
    before: dict[str, str] = {}

    def change(name: str, value: str) -> None:
        if name == "maxmemory" and {"served", "keyed"}.intersection(request.fixturenames):
            pytest.fail("a shared gateway would still refuse jobs in the next test; use an own one")
        before.setdefault(name, observer.config_get(name)[name] or "")
        observer.config_set(name, value)

    yield change
    for name, value in before.items():
        observer.config_set(name, value)


@pytest.fixture(autouse=True)
def _nothing_left_on_the_server(request: pytest.FixtureRequest) -> Iterator[None]:
    if "valkey" not in request.fixturenames:
        yield
        return
    server: LocalValkey = request.getfixturevalue("valkey")
    observer: Redis = request.getfixturevalue("observer")
    before = leaks.snapshot(observer)
    yield
    if not server.alive:
        server.start()
        pytest.fail("the test ended the shared server; use `own_valkey`")
    kept = [pattern for mark in request.node.iter_markers("keeps") for pattern in mark.args]
    found = leaks.leaks(observer, before, [*leaks.permanent_patterns(), *kept])
    observer.flushall()
    if found:
        pytest.fail("the test left behind:\n  " + "\n  ".join(found), pytrace=False)


@pytest_asyncio.fixture
async def _tasks_watched() -> AsyncIterator[None]:
    asyncio.get_running_loop().set_default_executor(Threads())
    before = asyncio.all_tasks()
    yield
    if found := await leaks.lingering_tasks(before):
        pytest.fail("the test left behind:\n  " + "\n  ".join(found), pytrace=False)


@pytest.fixture(autouse=True)
def _no_task_left(request: pytest.FixtureRequest) -> None:
    function = getattr(request.node, "obj", None)
    if inspect.iscoroutinefunction(function):
        request.getfixturevalue("_tasks_watched")
