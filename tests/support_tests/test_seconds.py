"""The seconds of a run, per system."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.program import ROOT
from tests.support.seconds import PLATFORM, SYSTEM_OF, system_of, table


@pytest.mark.parametrize(
    ("node_id", "system"),
    [
        ("tests/systems/predictions/test_flow.py::test_x", "predictions"),
        ("tests/interop/test_bullmq_verbs.py::test_x[a]", "queues"),
        ("tests/contracts/test_jobs_wire.py::test_x", "jobs"),
        ("tests/valkey/test_consumer.py::test_x", PLATFORM),
    ],
)
def test_a_test_belongs_to_a_system_by_its_path(node_id: str, system: str) -> None:
    assert system_of(node_id) == system


def test_every_path_of_the_table_exists() -> None:
    missing = [start for start, _ in SYSTEM_OF if not list(ROOT.glob(f"{start.rstrip('/')}*"))]
    assert missing == []


def test_the_table_has_the_longest_first_and_the_sum() -> None:
    cpu_s = {"jobs": 1.0, "queues": 2.5}
    lines = table({"jobs": 1.25, "queues": 20.0}, cpu_s, Counter({"jobs": 7, "queues": 2}))
    assert [line.split() for line in lines] == [
        ["queues", "2", "tests", "20.0", "s", "2.5", "s", "CPU"],
        ["jobs", "7", "tests", "1.2", "s", "1.0", "s", "CPU"],
        ["all", "9", "tests", "21.2", "s", "3.5", "s", "CPU"],
    ]
