"""B-10: whatever is done to a queue, the official package and ours leave the same keys."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.interop.bullmq_lab import Lab
from tests.interop.bullmq_sequences import Player, Step, sequences
from tests.support import clause

EXAMPLES = int(os.environ.get("JOBWIRE_BULLMQ_EXAMPLES", "60"))


@clause("B-10")
@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(sequence=sequences, extras=st.booleans())
def test_b10_random_sequences_stay_equal_step_by_step(
    lab: Lab, sequence: list[Step], extras: bool
) -> None:
    lab.reset(extras=extras)
    Player(lab).play(sequence)
