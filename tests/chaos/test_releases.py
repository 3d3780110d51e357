"""X-9, G-29: an earlier commit and this one side by side under faults."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.chaos.releases import EARLIER, is_known, side_by_side
from tests.support import clause
from tests.support.variants import only_with_variants

pytestmark = pytest.mark.skipif(
    not is_known(EARLIER), reason=f"expected: this clone does not have the commit {EARLIER}"
)


@only_with_variants
@clause("X-9", "G-29")
@pytest.mark.timeout(300)
async def test_x09_two_releases_pass_all_rules_together(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**6))
    outcome = await side_by_side(tmp_path, EARLIER, seed, seconds=8)
    print(outcome)
    assert not outcome.violations, str(outcome)
