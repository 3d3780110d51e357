"""B-10: whatever is done to a queue, the official package and ours leave the same keys."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.interop.bullmq_lab import Lab
from tests.interop.bullmq_sequences import THEMES, Player, sequences
from tests.support import clause

EXAMPLES = int(os.environ.get("JOBWIRE_BULLMQ_EXAMPLES", "60"))


@pytest.mark.parametrize("theme", THEMES)
@clause("B-10")
@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_b10_random_sequences_stay_equal_step_by_step(
    lab: Lab, theme: str, data: st.DataObject
) -> None:
    lab.reset(extras=data.draw(st.booleans()))
    Player(lab).play(data.draw(sequences(theme)))
