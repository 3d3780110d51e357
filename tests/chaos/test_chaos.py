"""R-1 … R-8 under all faults: a short run with a new seed each time.

`CHAOS_SEED=… make chaos` repeats one that went wrong.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.chaos.run import LEAST, chaos
from tests.support import clause
from tests.support.variants import only_with_variants


@only_with_variants
@clause("R-1", "R-2", "R-3", "R-4", "R-5", "R-6", "R-7", "R-8")
@pytest.mark.timeout(300)
async def test_all_rules_hold_under_random_faults(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**6))
    outcome = await chaos(tmp_path, seed, seconds=8)
    print(outcome)
    assert not outcome.violations, str(outcome)
    assert len(outcome.faults) >= LEAST
    assert len(outcome.history.runs) > 20
