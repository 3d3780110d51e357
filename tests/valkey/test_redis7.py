"""The whole toolkit on the oldest supported server."""

from __future__ import annotations

from jobwire.local import LocalValkey
from jobwire.valkey import (
    Connection,
    Consumer,
    HealthChecker,
    Producer,
    ProgressTracker,
    Reclaimer,
    StreamMessage,
)
from tests.support import clause, wait_until
from tests.support.servers import plain_client
from tests.valkey.conftest import GROUP, Recorder, entries, pending


@clause("T-5", "T-6", "T-7", "T-8", "T-9")
async def test_the_toolkit_works_with_redis_7(redis7: LocalValkey, stream: str) -> None:
    def fail_the_second(message: StreamMessage) -> None:
        if message.fields["n"] == "2":
            raise ValueError("cannot do 2")

    handler = Recorder(fail_the_second)
    async with Connection.open(redis7.url) as connection:
        with plain_client(redis7) as plain:
            producer = Producer(connection)
            for number in range(1, 4):
                await producer.publish_with_trim(stream, 10, {"n": number})
            async with Consumer(
                connection, stream=stream, group=GROUP, consumer="c1", handler=handler
            ):
                await handler.until_done(1, 3)
                await wait_until(lambda: len(pending(plain, stream)) == 1, "two acknowledgements")
            async with Reclaimer(
                connection,
                stream=stream,
                group=GROUP,
                consumer="c1",
                handler=handler,
                idle_timeout_s=0.3,
                scan_interval_s=0.1,
                max_deliveries=2,
                forget_after_s=0.3,
            ):
                await wait_until(lambda: plain.exists(f"{stream}:dead"), "the dead letter")
                await wait_until(lambda: pending(plain, stream) == {}, "all to be settled")
            (dead,) = entries(plain, f"{stream}:dead")
            assert dead.fields["deliveries"] == "2"

            tracker = ProgressTracker(connection, prefix=f"{stream}:")
            await tracker.set_progress("42", {"stage": "done"})
            assert await tracker.get_progress("42") == {"stage": "done"}
            assert plain.ttl(f"{stream}:42") > 0

            await producer.publish(stream, {"n": 4})
            health = await HealthChecker(connection).summary(stream, GROUP)
            assert (health.server, health.lag) == ("redis", 1)
            plain.delete(stream, f"{stream}:dead", f"{stream}:42")
