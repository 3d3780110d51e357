"""T-8: progress is merged and always expires."""

from __future__ import annotations

import pytest

from jobwire.local import LocalValkey
from jobwire.valkey import ConfigError, Connection, ProgressTracker, ServerError
from tests.support import Fresh, Plain, Proxy, clause


@clause("T-8")
async def test_t08_set_progress_writes_a_hash_that_expires_after_an_hour(
    connection: Connection, plain: Plain, fresh: Fresh
) -> None:
    id_ = fresh()
    await ProgressTracker(connection).set_progress(id_, {"stage": "decoding", "progress": 15})
    assert plain.hgetall(f"image:status:{id_}") == {"stage": "decoding", "progress": "15"}
    assert 3590 <= plain.ttl(f"image:status:{id_}") <= 3600


@clause("T-8")
async def test_t08_every_write_merges_fields_and_renews_the_ttl(
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
    assert plain.ttl(f"p:{id_}") > 50, "a write without fields renews the TTL, too"


@clause("T-8")
async def test_t08_delete_progress_deletes_the_hash(
    connection: Connection, plain: Plain, fresh: Fresh
) -> None:
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


async def test_a_missing_script_is_loaded_again(
    connection: Connection, plain: Plain, fresh: Fresh
) -> None:
    tracker = ProgressTracker(connection)
    await tracker.set_progress(fresh(), {"a": 1})
    plain.script_flush()
    id_ = fresh()
    await tracker.set_progress(id_, {"a": 1})
    assert await tracker.get_progress(id_) == {"a": "1"}


async def test_a_key_of_another_type_is_rejected(
    connection: Connection, plain: Plain, fresh: Fresh
) -> None:
    id_ = fresh()
    plain.set(f"image:status:{id_}", "text", ex=60)
    with pytest.raises(ServerError) as refused:
        await ProgressTracker(connection).set_progress(id_, {"a": 1})
    assert refused.value.code == "WRONGTYPE"


@clause("T-8")
async def test_t08_a_ttl_of_zero_means_the_default(
    connection: Connection, plain: Plain, fresh: Fresh
) -> None:
    id_ = fresh()
    await ProgressTracker(connection, ttl_s=0).set_progress(id_, {"a": 1})
    assert 3500 < plain.ttl(f"image:status:{id_}") <= 3600


@pytest.mark.parametrize("ttl_s", [-1, float("nan"), float("inf")])
async def test_an_invalid_ttl_is_rejected(connection: Connection, ttl_s: float) -> None:
    with pytest.raises(ConfigError, match="ttl_s: must be a positive number of seconds"):
        ProgressTracker(connection, ttl_s=ttl_s)
