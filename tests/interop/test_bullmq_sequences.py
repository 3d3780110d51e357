"""B-10: after any sequence of operations, the official package and ours leave the same keys."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.interop.bullmq_lab import ZONES, Lab
from tests.interop.bullmq_sequences import THEMES, Player, sequences
from tests.support import clause

# A deep run draws new sequences each time and shortens the one that fails, which takes minutes.
DEEP = os.environ.get("JOBWIRE_BULLMQ_EXAMPLES", "")
SETTINGS = settings(
    max_examples=int(DEEP or "14"),
    derandomize=not DEEP,
    phases=[Phase.generate, Phase.shrink] if DEEP else [Phase.generate],
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize(
    ("theme", "zone"),
    [(each, zone) for each in THEMES for zone in (ZONES if "schedulers" in each else ZONES[:1])],
)
@clause("B-10")
@SETTINGS
@given(data=st.data())
def test_b10_random_sequences_stay_equal_step_by_step(
    lab: Lab, theme: str, zone: str, data: st.DataObject
) -> None:
    lab.reset(extras=data.draw(st.booleans()), zone=zone)
    Player(lab).play(data.draw(sequences(theme)))
