"""The scripts run on Redis 7 too, the oldest supported server."""

from __future__ import annotations

from jobwire.local import LocalValkey
from jobwire.systems.queues.consumer import FailedAttempt
from jobwire.valkey import Connection
from tests.support import clause
from tests.support.servers import plain_client
from tests.systems.queues.conftest import Site


@clause("B-1", "B-2", "B-4", "B-5", "B-6")
async def test_b04_the_lifecycle_of_a_job_on_redis_7(redis7: LocalValkey) -> None:
    async with Connection.open(redis7.url) as connection:
        with plain_client(redis7) as plain:
            site = Site(connection, plain)
            for priority, delay_ms in ((0, 0), (3, 0), (0, 50)):
                await site.add(priority=priority, delay_ms=delay_ms, attempts=2)
            job, token = await site.take()
            await site.admin.set_progress(job.id, "50", "half")
            assert await site.consumer.renew([(job.id, token)]) == []
            await site.consumer.delay(job, token, 10, FailedAttempt("no"))
            site.later(100)
            assert [await site.complete() for _ in range(3)] == ["1", "3", "2"]
            assert await site.consumer.check_stalled() == []
            await site.queue.pause()
            await site.queue.resume()
            assert sum((await site.queue.counts()).values()) == 3
            plain.flushall()
