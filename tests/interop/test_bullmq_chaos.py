"""B-9 under faults: a mixed fleet loses no job and ends each once, with the same state as without
faults.

`QUEUE_CHAOS_JOBS=100000 make chaos` runs it with many jobs; `CHAOS_SEED` repeats a run.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

import pytest

from tests.interop.bullmq_chaos import Chaos
from tests.support import clause
from tests.support.thirdparty import node_packages, python_packages

JOBS: Final = int(os.environ.get("QUEUE_CHAOS_JOBS") or 0)
SMALL: Final = 160
SMALL_KINDS: Final = ("kill_ours", "kill_team")
"""Faults from which the official packages recover in a defined way."""


@clause("B-9", "B-6", "B-14", "B-15")
@pytest.mark.timeout(420)
@pytest.mark.parametrize("preloaded", [False, True] if JOBS else [False])
async def test_b9_a_mixed_fleet_under_faults_ends_every_job_as_without_faults(
    tmp_path: Path, preloaded: bool
) -> None:
    node_packages()
    python_packages()
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**6))
    if JOBS:
        chaos = Chaos(tmp_path, seed, JOBS, preloaded=preloaded)
        outcome = await chaos.run(12, 40, timeout_s=240)
    else:
        chaos = Chaos(tmp_path, seed, SMALL, teams=["node6"])
        outcome = await chaos.run(2, 1.5, timeout_s=90, kinds=SMALL_KINDS)
    print(outcome)
    assert not outcome.violations, str(outcome)
    assert outcome.faults
