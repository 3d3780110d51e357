"""Settings of the wire: valid defaults, and all faults in one error."""

from __future__ import annotations

import pytest

from jobwire.job.errors import RefusedError
from jobwire.systems.jobs.settings import StreamsSettings


def test_the_defaults_equal_the_contract() -> None:
    settings = StreamsSettings()
    assert (settings.job_ttl_s, settings.max_queue, settings.max_events) == (86_400, 10_000, 10_000)
    assert (settings.lease_s, settings.foreign_idle_s, settings.max_deliveries) == (30, 900, 5)
    assert settings.unknown_task_grace_s == 60


def test_invalid_settings_are_refused_at_once() -> None:
    with pytest.raises(RefusedError) as refused:
        StreamsSettings(job_ttl_s=0, lease_s=-1, max_deliveries=0, key_prefix="a\nb")
    for name in ("job_ttl_s", "lease_s", "max_deliveries", "key_prefix"):
        assert name in refused.value.message


@pytest.mark.parametrize("lease_s", [float("nan"), float("inf")])
def test_an_invalid_lease_is_refused(lease_s: float) -> None:
    with pytest.raises(RefusedError, match="lease_s"):
        StreamsSettings(lease_s=lease_s)
