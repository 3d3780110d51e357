"""A pytest plugin: which test process runs what, the longest first, and what ran before a failure.

With `-n auto --dist=loadgroup` there are five test processes a core, or fewer where memory is
scarce (`JOBWIRE_TEST_WORKERS` changes that): most tests wait. A process gets units. A unit is all
tests of an `xdist_group`, or tests of one file up to `UNIT_S`, so that fixtures of a module are set
up once or twice. Units with tests of `tests/durations.json` come first, the longest first; all
others keep their random order.

`--quick` leaves out the tests of that file and those with a costly fixture (`make quick`).
`--write-durations` writes the file anew (`make durations`). For a failed test, the seed of the run
and the tests that its process had run before are kept in pytest's cache: `tools/rerun_failed.py`
repeats them.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import pytest
from xdist.scheduler import LoadScopeScheduling  # pyright: ignore[reportMissingTypeStubs]

from jobwire.local import ports
from jobwire.spawn import usable_cores, usable_memory

DURATIONS: Final = Path(__file__).parents[1] / "durations.json"
WORKERS: Final = "JOBWIRE_TEST_WORKERS"
FAILED: Final = "jobwire/failed"
UNIT_S: Final = 8.0
RECORDED_S: Final = 0.5
UNKNOWN_S: Final = 0.05
COSTLY: Final = frozenset({"_lab", "browser", "cog_url", "moto", "postgres", "seaweedfs"})
"""Fixtures of a session that take long to set up; a test after the first does not show it."""
BROWSER: Final = "browser"
PER_CORE: Final = 5
AT_MOST: Final = 24
WORKER_BYTES: Final = 1536 << 20
"""Memory of a test process and the programs that it starts."""
_GROUPS: Final = "jobwire_groups"
_FOLDER: Final = pytest.StashKey[Path]()


def number_of_workers() -> int:
    """Return how many test processes run."""
    return workers_for(usable_cores(), usable_memory(), os.environ.get(WORKERS))


def workers_for(cores: int, memory: int, wanted: str | None) -> int:
    """Return the same for a machine with these cores and bytes of memory."""
    if wanted:
        return int(wanted)
    return max(1, min(PER_CORE * cores, memory // WORKER_BYTES, AT_MOST))


def port_range(lowest: int, highest: int, process: int, count: int) -> tuple[int, int]:
    """Return the part of a range of ports that one of `count` test processes chooses from."""
    size = (highest - lowest + 1) // count
    return lowest + process * size, lowest + (process + 1) * size - 1


def known_durations() -> dict[str, float]:
    """Return the seconds of the long tests."""
    return json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


def units(
    tests: Iterable[str], groups: Mapping[str, str], durations: Mapping[str, float]
) -> list[list[str]]:
    """Return the tests in the portions and in the order in which processes get them."""
    grouped: defaultdict[str, list[str]] = defaultdict(list)
    files: defaultdict[str, list[list[str]]] = defaultdict(list)
    for test in tests:
        portions = files[test.partition("::")[0]]
        if test in groups:
            grouped[groups[test]].append(test)
        elif durations.get(test, UNKNOWN_S) >= UNIT_S:
            portions.insert(0, [test])
        elif portions and _seconds([*portions[-1], test], durations) <= UNIT_S:
            portions[-1].append(test)
        else:
            portions.append([test])
    found = [*grouped.values(), *(portion for portions in files.values() for portion in portions)]
    return sorted(found, key=lambda portion: -_seconds(portion, durations, unknown_s=0.0))


def _seconds(
    portion: Sequence[str], durations: Mapping[str, float], unknown_s: float = UNKNOWN_S
) -> float:
    return sum(durations.get(test, unknown_s) for test in portion)


class LongestFirst(LoadScopeScheduling):
    """Hands out the units of `units`, in their order."""

    def schedule(self) -> None:
        if self.collection is None:
            node, collected = next(iter(self.registered_collections.items()))
            file = cast("dict[str, str]", node.workerinput)[_GROUPS]
            groups = json.loads(Path(file).read_text())
            self._rank = {
                test: rank
                for rank, portion in enumerate(units(collected, groups, known_durations()))
                for test in portion
            }
        super().schedule()

    def remove_node(self, node: Any) -> str | None:
        """A test whose process died has failed: the process that replaces it runs the others."""
        crashed: str | None = super().remove_node(node)
        for rank, unit in [*self.workqueue.items()]:
            if crashed in unit:
                unit[crashed] = True
                if all(unit.values()):
                    del self.workqueue[rank]
        return crashed

    def _split_scope(self, nodeid: str) -> str:
        return str(self._rank[nodeid])

    def _assign_work_unit(self, node: Any) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=int), last=False)
        super()._assign_work_unit(node)


class Runs:
    """What each test process ran, and how long it took; kept by the process that prints."""

    def __init__(self) -> None:
        self._ran: defaultdict[str, list[str]] = defaultdict(list)
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._failed: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        ran = self._ran[getattr(report, "worker_id", "")]
        name = report.nodeid
        self._seconds[name] += report.duration
        if report.when == "setup":
            ran.append(name)
        if report.failed:
            self._failed[name] = ran[:-1] if ran[-1:] == [name] else ran[:]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        config = session.config
        if cache := cast("pytest.Cache | None", getattr(config, "cache", None)):
            seed = config.getoption("randomly_seed", 0)
            cache.set(FAILED, {"seed": seed, "failed": self._failed})
        if config.getoption("write_durations"):
            long = {test: took for test, took in self._seconds.items() if took >= RECORDED_S}
            text = json.dumps({test: round(long[test], 1) for test in sorted(long)}, indent=0)
            DURATIONS.write_text(text + "\n", encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-durations",
        action="store_true",
        help=f"write the tests that took {RECORDED_S} s or longer to {DURATIONS.name}",
    )

    parser.addoption(
        "--quick", action="store_true", help=f"no tests of {DURATIONS.name} and no costly fixtures"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.option.loadgroup = False  # see `pytest_collection_finish`
    for item in items:
        # A start of the browser costs ten seconds of CPU: tests outside of the page share one.
        is_in_group = item.get_closest_marker("xdist_group") is not None
        if not is_in_group and BROWSER in cast("pytest.Function", item).fixturenames:
            item.add_marker(pytest.mark.xdist_group(BROWSER))
    if not config.getoption("quick"):
        return
    long = known_durations()
    costly = [each for each in items if each.nodeid in long or _has_costly_fixture(each)]
    config.hook.pytest_deselected(items=costly)
    items[:] = [each for each in items if each not in set(costly)]


def _has_costly_fixture(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and not COSTLY.isdisjoint(item.fixturenames)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    config: pytest.Config = node.config
    if _FOLDER not in config.stash:
        folder = TemporaryDirectory()
        config.add_cleanup(folder.cleanup)
        config.stash[_FOLDER] = Path(folder.name)
    node.workerinput[_GROUPS] = str(config.stash[_FOLDER] / "groups.json")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the group of each test for the process that distributes them.

    xdist appends it to the tests' ids, which pytest 9 does not allow.
    """
    if file := getattr(session.config, "workerinput", {}).get(_GROUPS):
        marks = ((item.nodeid, item.get_closest_marker("xdist_group")) for item in session.items)
        written = Path(f"{file}.{os.getpid()}")
        written.write_text(json.dumps({name: mark.args[0] for name, mark in marks if mark}))
        written.replace(file)


def pytest_configure(config: pytest.Config) -> None:
    own: Mapping[str, Any] | None = getattr(config, "workerinput", None)
    if own is None:
        config.pluginmanager.register(Runs(), "runs-of-test-processes")
        return
    # Else another process may take the port of a server that a test has stopped and starts again.
    # SeaweedFS adds 10,000 to one of its ports, which must be in the range, too.
    number = int(own["workerid"].removeprefix("gw")) % own["workercount"]
    ports.LOWEST, ports.HIGHEST = port_range(
        ports.LOWEST, ports.HIGHEST - 10_000, number, own["workercount"]
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    # One test needs no second process; all of them collect first.
    if config.args and all("::" in argument for argument in config.args):
        return 0
    return number_of_workers()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongestFirst | None:
    return LongestFirst(config, log) if config.getvalue("dist") == "loadgroup" else None
