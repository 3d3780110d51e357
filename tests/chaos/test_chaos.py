"""R-1 … R-8 under all faults: a short run with a new seed each time.

`CHAOS_SEED=… make chaos` repeats one that went wrong.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from jobwire.job.ids import shard_of
from tests.chaos.cluster import moves
from tests.chaos.run import LEAST, chaos
from tests.support import clause
from tests.support.variants import only_with_variants


@only_with_variants
@clause("R-1", "R-2", "R-3", "R-4", "R-5", "R-6", "R-7", "R-8")
@pytest.mark.timeout(300)
async def test_all_rules_hold_under_random_faults(tmp_path: Path) -> None:
    outcome = await chaos(tmp_path, _seed(), seconds=8)
    print(outcome)
    assert not outcome.violations, str(outcome)
    assert len(outcome.faults) >= LEAST
    assert len(outcome.history.runs) > 20


@only_with_variants
@clause("G-30")
@pytest.mark.timeout(300)
# Callers drop requests on purpose; of many at a time, some are still connecting.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_g30_all_rules_hold_with_shards_on_a_cluster(tmp_path: Path) -> None:
    outcome = await moves(tmp_path, _seed(), 15, "shards")
    print(outcome)
    assert not outcome.violations, str(outcome)
    assert outcome.faults["shards_doubled"]
    assert len({shard_of(job_id) for job_id in outcome.history.jobs}) == 16


def _seed() -> int:
    return int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**6))
