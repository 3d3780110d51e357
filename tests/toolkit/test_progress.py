"""T-8: progress is merged, and always goes by itself."""

from __future__ import annotations

import pytest

from jobwire.local import LocalValkey
from jobwire.valkey import ConfigError, Connection, ProgressTracker, ServerError
from tests.support import Fresh, Plain, Proxy, clause


@clause("T-8")
async def test_t08_setting_progress_makes_a_hash_that_goes_after_an_hour(
    connection: Connection, plain: Plain, fresh: Fresh
) -> None:
    id_ = fresh()
    await ProgressTracker(connection).set_progress(id_, {"stage": "decoding", "progress": 15})
    assert plain.hgetall(f"image:status:{id_}") == {"stage": "decoding", "progress": "15"}
    assert 3590 <= plain.ttl(f"image:status:{id_}") <= 3600


@clause("T-8")
async def test_t08_fields_are_merged_and_the_time_renewed_at_every_write(
    connection: Connection, plain: Plain, fresh: Fresh
) -> None:
    id_ = fresh()
    tracker = ProgressTracker(connection, ttl_s=100, prefix="p:")
    await tracker.set_progress(id_, {"a": "1", "b": "2"})
    plain.expire(f"p:{id_}", 5)
    await tracker.set_progress(id_, {"b": "3", "c": "4"})
    assert await tracker.get_progress(id_) == {"a": "1", "b": "3", "c": "4"}
    assert plain.ttl(f"p:{id_}") > 50
    plain.expire(f"p:{id_}", 5)
    await tracker.set_progress(id_, {})
    assert plain.ttl(f"p:{id_}") > 50, "a sign of life renews the time, too"


@clause("T-8")
async def test_t08_deleting_removes_it(connection: Connection, plain: Plain, fresh: Fresh) -> None:
    id_ = fresh()
    tracker = ProgressTracker(connection)
    await tracker.set_progress(id_, {"a": 1})
    assert await tracker.delete_progress(id_)
    assert not plain.exists(f"image:status:{id_}")
    assert not await tracker.delete_progress(id_)
    assert await tracker.get_progress(id_) == {}


@clause("T-8")
async def test_t08_a_write_is_one_step(valkey: LocalValkey, proxy: Proxy, fresh: Fresh) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection:
        tracker = ProgressTracker(connection)
        await tracker.set_progress(fresh(), {"a": 1})
        proxy.forget_seen()
        await tracker.set_progress(fresh(), {"a": 1})
        assert proxy.names == ["EVALSHA"]


async def test_a_server_that_forgot_the_script_is_no_trouble(
    connection: Connection, plain: Plain, fresh: Fresh
) -> None:
    tracker = ProgressTracker(connection)
    await tracker.set_progress(fresh(), {"a": 1})
    plain.script_flush()
    id_ = fresh()
    await tracker.set_progress(id_, {"a": 1})
    assert await tracker.get_progress(id_) == {"a": "1"}


async def test_what_is_no_hash_is_refused(
    connection: Connection, plain: Plain, fresh: Fresh
) -> None:
    id_ = fresh()
    plain.set(f"image:status:{id_}", "text", ex=60)
    with pytest.raises(ServerError) as refused:
        await ProgressTracker(connection).set_progress(id_, {"a": 1})
    assert refused.value.code == "WRONGTYPE"


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan"), float("inf")])
async def test_a_time_that_is_none_is_refused(connection: Connection, ttl_s: float) -> None:
    with pytest.raises(ConfigError, match="ttl_s: must be a positive number of seconds"):
        ProgressTracker(connection, ttl_s=ttl_s)
