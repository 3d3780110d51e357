"""Which test process runs what; what is repeated after a failure."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.distribution import port_range, units, workers_for
from tests.support.program import ROOT
from tools.rerun_failed import preceding

FILE = "tests/a/test_a.py"


def test_five_processes_a_core_if_there_is_memory_unless_told_otherwise() -> None:
    assert workers_for(2, 24 << 30, None) == 10
    assert workers_for(2, 4 << 30, None) == 2
    assert workers_for(2, 8 << 30, None) == 5
    assert workers_for(1, 512 << 20, "") == 1
    assert workers_for(2, 4 << 30, "12") == 12
    assert workers_for(96, 256 << 30, None) == 24


def test_test_processes_choose_from_different_ports() -> None:
    ranges = [port_range(10_240, 32_767, process, 6) for process in range(6)]
    assert ranges[0][0] == 10_240
    assert ranges[-1][1] <= 32_767
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ranges))


def test_units_are_long_ones_first_then_files_in_their_order() -> None:
    durations = {f"{FILE}::long": 30.0, f"{FILE}::some": 2.0, "tests/test_g.py::one": 9.0}
    collected = [
        "tests/test_z.py::one",
        f"{FILE}::short",
        f"{FILE}::long",
        f"{FILE}::some",
        "tests/test_g.py::one",
        "tests/test_h.py::two",
        "tests/test_b.py::one",
    ]
    groups = {"tests/test_g.py::one": "g", "tests/test_h.py::two": "g"}
    assert units(collected, groups, durations) == [
        [f"{FILE}::long"],
        ["tests/test_g.py::one", "tests/test_h.py::two"],
        [f"{FILE}::short", f"{FILE}::some"],
        ["tests/test_z.py::one"],
        ["tests/test_b.py::one"],
    ]


def test_a_file_of_many_seconds_has_several_units() -> None:
    names = [f"{FILE}::test_{number}" for number in range(6)]
    assert units(names, {}, dict.fromkeys(names, 3.0)) == [names[:2], names[2:4], names[4:]]


def test_tests_before_a_failed_one_are_repeated_up_to_a_limit() -> None:
    ran = ["a", "b", "c"]
    assert preceding(ran, {"a": 5.0, "b": 5.0}, 6.0) == ["b", "c"]
    assert preceding(ran, {"c": 9.0}, 6.0) == []
    assert preceding(ran, {}, 6.0) == ran


IMPORTS = """
import os
import pytest
"""

ORDER = """
seen = []

def test_first():
    seen.append(1)

def test_second():
    assert not seen
"""

GROUPED = """
@pytest.mark.xdist_group("g")
@pytest.mark.parametrize("n", ["[1]", "x@y"])
def test_grouped(n):
    with open(os.environ["RAN"], "a") as ran:
        print(os.environ["PYTEST_XDIST_WORKER"], file=ran)
"""


def test_groups_run_in_one_process_and_the_tests_before_a_failure_are_kept(tmp_path: Path) -> None:
    """A fault that depends on the order is found again by what is on record."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.support.distribution"]\n')
    (tmp_path / "test_order.py").write_text(IMPORTS + ORDER + GROUPED)
    (tmp_path / "test_other.py").write_text(IMPORTS + GROUPED)
    ran = tmp_path / "ran.txt"
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    inner = ["-n2", "--dist=loadgroup", "-p", "no:schemathesis", "--randomly-dont-reorganize"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *inner, "--randomly-seed=7"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAN": str(ran)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert "1 failed, 5 passed" in done.stdout, done.stdout + done.stderr
    processes = ran.read_text().split()
    assert len(processes) == 4
    assert len(set(processes)) == 1
    record = json.loads((tmp_path / ".pytest_cache/v/jobwire/failed").read_text())
    failed = {"test_order.py::test_second": ["test_order.py::test_first"]}
    assert record == {"seed": 7, "failed": failed}


def test_a_test_whose_process_died_is_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(
        "import os, pytest\n"
        "pytestmark = pytest.mark.xdist_group('one')\n"
        "def test_dies(): os._exit(1)\n"
        "def test_after(): pass\n"
    )
    inner = ["-n1", "--dist=loadgroup", "-p", "no:schemathesis", "-p", "no:randomly"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *inner, "-p", "tests.support.distribution"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
