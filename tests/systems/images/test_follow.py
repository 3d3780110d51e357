"""The follower of image statuses: delivery to readers, and reads of the server."""

from __future__ import annotations

from jobwire.local import LocalValkey
from jobwire.systems.images.contract import ImageKeys
from jobwire.systems.images.follow import ImageState, StatusFollower
from tests.support import Fresh, Plain, Proxy, clause, wait_until

_BY_RECORD = ImageState("done", 100, "2026-02-24T10:00:00.000000Z")


class Reader:
    """Keeps the stages that it gets."""

    closed = False

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.ended = False

    def push(self, event: ImageState) -> bool:
        self.stages.append(event.stage)
        return True

    def end(self) -> None:
        self.ended = True

    async def wait_writable(self) -> None: ...


async def by_record(_: str) -> ImageState | None:
    return _BY_RECORD


def put_stage(plain: Plain, key: str, stage: str, progress: int) -> None:
    with plain.pipeline(transaction=True) as pipeline:
        pipeline.hset(key, mapping={"stage": stage, "progress": progress, "updated_at": stage})
        pipeline.expire(key, 60)
        pipeline.execute()


@clause("I-34")
async def test_i34_a_new_reader_gets_the_known_state_without_a_read_for_the_others(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, fresh: Fresh
) -> None:
    keys, image_id = ImageKeys(), fresh("image")
    put_stage(plain, keys.status(image_id), "queued", 0)
    follower, readers = StatusFollower(keys, by_record), [Reader() for _ in range(5)]
    async with follower.running(proxy.url(valkey.url), "tests"):
        follower.watch(image_id, readers[0])
        await wait_until(lambda: readers[0].stages, "the present state")
        for reader in readers[1:]:
            follower.watch(image_id, reader)
        assert [reader.stages for reader in readers] == [["queued"]] * 5
        assert len(proxy.seen("HGETALL")) == 1
        put_stage(plain, keys.status(image_id), "done", 100)
        await wait_until(lambda: all(reader.ended for reader in readers), "the end")
        assert [reader.stages for reader in readers] == [["queued", "done"]] * 5
        assert follower.watchers == 0


@clause("I-12")
async def test_i12_a_key_of_another_type_is_a_missing_status(
    valkey: LocalValkey, plain: Plain, fresh: Fresh
) -> None:
    """A read that fails each time would be repeated forever."""
    keys, image_id = ImageKeys(), fresh("image")
    plain.set(keys.status(image_id), "text", ex=60)
    follower, reader = StatusFollower(keys, by_record), Reader()
    async with follower.running(valkey.url, "tests"):
        follower.watch(image_id, reader)
        await wait_until(lambda: reader.ended, "the end")
    assert reader.stages == ["done"]
