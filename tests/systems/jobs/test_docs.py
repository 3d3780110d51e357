"""The page about the wire names every field and key."""

from __future__ import annotations

import re
from pathlib import Path

from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import StreamsKeys

PAGE = (Path(__file__).parents[3] / "docs" / "jobs-wire.md").read_text()


def test_the_page_names_every_field() -> None:
    named = set(re.findall(r"`([^`]+)`", PAGE))
    nine = "`job_id task payload status created_ts updated_ts ttl_s result error`"
    assert nine == f"`{' '.join(contract.Field)}`"
    assert nine in PAGE
    assert set(contract.Extra) <= named


def test_the_page_names_every_key() -> None:
    keys = StreamsKeys()
    for key in (
        *(keys.queue, keys.delayed, keys.open, keys.tenants, keys.control, keys.index()),
        *(
            keys.job("{id}"),
            keys.events("{id}"),
            keys.steps("{id}"),
            keys.suspended,
            keys.tenant_open("{tenant}"),
        ),
        *(keys.idempotency(f"{contract.IDEMPOTENCY}{{key}}"),),
        *(keys.idempotency(contract.TENANT_IDEMPOTENCY) + "{tenant}:{hash}",),
        *(keys.idempotency(contract.cron_run_name("{name}", 0)).replace("0", "{due_ms}"),),
        *(keys.index("{tenant}"), keys.worker("{consumer}"), keys.guard("{task}")),
        *(keys.tasks, keys.clock, keys.queues, keys.paused, keys.named_queue("{queue}")),
        *(keys.cron("{name}"), keys.stats(0).replace("0", "{minute}")),
    ):
        assert f"`{key}`" in PAGE
