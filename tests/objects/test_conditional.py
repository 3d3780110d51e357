"""Conditional writes: one winner, which always knows that it won (P-10, P-12)."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from jobwire.objects import (
    AnswerLost,
    Bucket,
    BucketConfig,
    Changed,
    Created,
    Exists,
    Found,
    Missing,
    Replaced,
    Unavailable,
    Version,
)
from tests.support import Fresh, clause
from tests.support.s3 import boto_client
from tests.support.s3_proxy import (
    Forward,
    Mishap,
    Reply,
    S3Proxy,
    conflict,
    dropped,
    sent_twice,
    slow_down,
    stored_but_500,
    stored_but_dropped,
)

RACERS = 20
TEXT = "text/plain"
LOST = [stored_but_dropped, stored_but_500, sent_twice]
NOT_DONE = [dropped, slow_down, conflict]


def containing(word: str) -> Callable[[str], bytes]:
    return lambda writer: f"{word} {writer}".encode()


async def create(bucket: Bucket, key: str, word: str = "created") -> Created | Exists:
    return await bucket.create(key, containing(word), content_type=TEXT)


async def created(bucket: Bucket, key: str) -> Version:
    result = await create(bucket, key)
    assert isinstance(result, Created)
    return result.version


async def replaced(
    bucket: Bucket, key: str, seen: Version, word: str = "replaced"
) -> Replaced | Changed | Missing:
    return await bucket.replace(key, containing(word), seen=seen, content_type=TEXT)


async def word_in(bucket: Bucket, key: str) -> str:
    found = await bucket.get(key)
    assert isinstance(found, Found)
    return found.body.decode().split()[0]


def rounds(store: BucketConfig, moto: BucketConfig) -> int:
    """Contended conditional writes take seconds on SeaweedFS: one round there."""
    return 10 if store == moto else 1


@clause("P-10")
async def test_p10_one_of_twenty_concurrent_creates_wins(
    store: BucketConfig, moto: BucketConfig, fresh: Fresh
) -> None:
    bucket = Bucket(store)
    for _ in range(rounds(store, moto)):
        key = fresh("race")
        results = await asyncio.gather(
            *(create(bucket, key, str(racer)) for racer in range(RACERS))
        )
        winners = [racer for racer in range(RACERS) if isinstance(results[racer], Created)]
        assert len(winners) == 1
        assert await word_in(bucket, key) == str(winners[0])
        for result in results:
            if isinstance(result, Exists):
                assert result.found.body.startswith(str(winners[0]).encode())


@clause("P-10")
async def test_p10_one_of_twenty_concurrent_replacements_wins(
    store: BucketConfig, moto: BucketConfig, fresh: Fresh
) -> None:
    bucket = Bucket(store)
    for _ in range(rounds(store, moto)):
        key = fresh("race")
        seen = await created(bucket, key)
        results = await asyncio.gather(
            *(replaced(bucket, key, seen, str(racer)) for racer in range(RACERS))
        )
        winners = [racer for racer in range(RACERS) if isinstance(results[racer], Replaced)]
        assert len(winners) == 1
        assert await word_in(bucket, key) == str(winners[0])
        assert all(isinstance(result, Replaced | Changed) for result in results)


@clause("P-10")
async def test_p10_equal_content_does_not_make_two_winners(bucket: Bucket, fresh: Fresh) -> None:
    """An ETag is the content's MD5: equal bytes would count as unchanged."""
    key = fresh()
    seen = await created(bucket, key)
    first = await replaced(bucket, key, seen, "created")
    second = await replaced(bucket, key, seen, "created")
    assert isinstance(first, Replaced)
    assert isinstance(second, Changed)
    with pytest.raises(ValueError, match="two writers could both replace"):
        await bucket.replace(key, lambda _writer: b"same", seen=seen, content_type=TEXT)


@clause("P-10")
async def test_p10_the_loser_gets_the_current_state(bucket: Bucket, fresh: Fresh) -> None:
    key = fresh()
    seen = await created(bucket, key)
    first = await replaced(bucket, key, seen, "one")
    assert isinstance(first, Replaced)
    late = await replaced(bucket, key, seen, "late")
    assert isinstance(late, Changed)
    assert late.found.body.startswith(b"one")
    assert late.found.version == first.version
    merged = await replaced(bucket, key, late.found.version, "merged")
    assert isinstance(merged, Replaced)
    again = await create(bucket, key, "again")
    assert isinstance(again, Exists)
    assert again.found.body.startswith(b"merged")


async def test_replacing_a_missing_object_returns_missing(bucket: Bucket, fresh: Fresh) -> None:
    key = fresh()
    assert await replaced(bucket, key, Version('"never"')) == Missing(key)


async def test_an_object_of_another_program_can_be_replaced_if_unchanged(
    bucket: Bucket, fresh: Fresh
) -> None:
    """Another program's object has no write history; its ETag decides."""
    key, name = fresh(), bucket.config.bucket
    raw = boto_client(bucket.config)
    raw.put_object(Bucket=name, Key=key, Body=b"theirs")
    found = await bucket.get(key)
    assert isinstance(found, Found)
    raw.put_object(Bucket=name, Key=key, Body=b"theirs, again")
    assert isinstance(await replaced(bucket, key, found.version), Changed)
    found = await bucket.get(key)
    assert isinstance(found, Found)
    assert isinstance(await replaced(bucket, key, found.version), Replaced)


@clause("P-12")
@pytest.mark.parametrize("mishap", LOST)
async def test_p12_a_winner_knows_it_after_a_lost_reply(
    store: BucketConfig, fresh: Fresh, mishap: Mishap
) -> None:
    key = fresh()
    with S3Proxy(store) as proxy:
        bucket = Bucket(proxy.config)
        proxy.plan(mishap)
        first = await create(bucket, key)
        assert isinstance(first, Created)
        proxy.plan(mishap)
        second = await replaced(bucket, key, first.version)
        assert isinstance(second, Replaced)
        third = await replaced(bucket, key, second.version, "third")
        assert isinstance(third, Replaced)
        assert await word_in(bucket, key) == "third"


@clause("P-12")
async def test_p12_a_reply_that_times_out_is_resolved_by_reading(
    store: BucketConfig, fresh: Fresh
) -> None:
    key, over = fresh(), threading.Event()

    def stored_without_reply(forward: Forward) -> Reply | None:
        forward()
        over.wait(30)
        return None

    with S3Proxy(store) as proxy:
        bucket = Bucket(replace(proxy.config, timeout_s=1.0))
        proxy.plan(stored_without_reply)
        try:
            assert isinstance(await create(bucket, key), Created)
        finally:
            over.set()
        assert proxy.writes == 1


@clause("P-12")
@pytest.mark.parametrize("mishap", LOST)
async def test_p12_a_loser_knows_it_after_a_lost_reply(
    store: BucketConfig, fresh: Fresh, mishap: Mishap
) -> None:
    key = fresh()
    seen = await created(Bucket(store), key)
    other = await replaced(Bucket(store), key, seen, "other")
    assert isinstance(other, Replaced)
    with S3Proxy(store) as proxy:
        bucket = Bucket(proxy.config)
        proxy.plan(mishap)
        assert isinstance(await create(bucket, key), Exists)
        proxy.plan(mishap)
        assert isinstance(await replaced(bucket, key, seen), Changed)
    assert await word_in(Bucket(store), key) == "other"


@clause("P-12")
@pytest.mark.parametrize("mishap", NOT_DONE)
async def test_p12_a_write_that_did_not_arrive_is_repeated(
    store: BucketConfig, fresh: Fresh, mishap: Mishap
) -> None:
    key = fresh()
    with S3Proxy(store) as proxy:
        bucket = Bucket(proxy.config)
        proxy.plan(mishap, mishap)
        first = await create(bucket, key)
        assert isinstance(first, Created)
        proxy.plan(mishap, mishap)
        assert isinstance(await replaced(bucket, key, first.version), Replaced)
        assert proxy.writes == 6


@clause("P-12")
async def test_p12_a_write_that_arrives_late_counts_once(store: BucketConfig, fresh: Fresh) -> None:
    """The first attempt times out, is not visible when read, and arrives before the second."""
    late: list[Forward] = []

    def delayed(forward: Forward) -> Reply | None:
        late.append(forward)
        return None

    def overtaken_by_the_first(forward: Forward) -> Reply | None:
        late.pop()()
        return forward()

    key = fresh()
    with S3Proxy(store) as proxy:
        bucket = Bucket(proxy.config)
        proxy.plan(delayed, overtaken_by_the_first)
        first = await create(bucket, key)
        assert isinstance(first, Created)
        proxy.plan(delayed, overtaken_by_the_first)
        assert isinstance(await replaced(bucket, key, first.version), Replaced)


@clause("P-12")
async def test_p12_a_winner_that_was_replaced_knows_that_it_won(
    store: BucketConfig, fresh: Fresh
) -> None:
    """The write succeeded, its reply was lost, and another writer replaced it before the read."""
    key = fresh()

    def stored_then_replaced(forward: Forward) -> Reply | None:
        forward()
        asyncio.run(_replace_current(store, key))
        return None

    with S3Proxy(store) as proxy:
        bucket = Bucket(proxy.config)
        proxy.plan(stored_then_replaced)
        first = await create(bucket, key)
        assert isinstance(first, Created)
        # The version no longer exists, so it cannot be replaced.
        after = await replaced(bucket, key, first.version)
        assert isinstance(after, Changed)
        assert after.found.body.startswith(b"overtaking")
        proxy.plan(stored_then_replaced)
        first = await replaced(bucket, key, after.found.version)
        assert isinstance(first, Replaced)
        assert isinstance(await replaced(bucket, key, first.version), Changed)


@clause("P-12")
async def test_p12_an_undeterminable_result_raises(store: BucketConfig, fresh: Fresh) -> None:
    """A program without write history overwrote the object."""
    key = fresh()

    def stored_then_overwritten(forward: Forward) -> Reply | None:
        forward()
        boto_client(store).put_object(Bucket=store.bucket, Key=key, Body=b"theirs")
        return None

    with S3Proxy(store) as proxy:
        proxy.plan(stored_then_overwritten)
        with pytest.raises(AnswerLost, match=rf"read {key} and decide again"):
            await create(Bucket(proxy.config), key)


@clause("P-12")
async def test_p12_an_unavailable_store_leaves_the_result_unknown(
    moto: BucketConfig, fresh: Fresh
) -> None:
    with S3Proxy(moto) as dropping, S3Proxy(moto) as conflicting:
        dropping.always(lambda _number: dropped)
        conflicting.always(lambda _number: conflict)
        gone = replace(moto, endpoint="http://127.0.0.1:9")
        errors = await asyncio.gather(
            *(
                create(Bucket(each), fresh())
                for each in (dropping.config, conflicting.config, gone)
            ),
            return_exceptions=True,
        )
    assert all(isinstance(error, Unavailable) for error in errors)
    assert re.search("did not answer .*; attempts=6", str(errors[0]))
    assert re.search("answered 409 ConditionalRequestConflict .* attempts=6", str(errors[1]))
    assert str(errors[2]).endswith("was written is unknown")


@clause("P-10", "P-12")
async def test_p12_a_race_with_every_second_reply_lost_has_one_winner(
    moto: BucketConfig, fresh: Fresh
) -> None:
    faults = [*LOST, *NOT_DONE]
    with S3Proxy(moto) as proxy:
        bucket = Bucket(proxy.config)
        proxy.always(lambda number: faults[number // 2 % len(faults)] if number % 2 else None)
        for _ in range(3):
            key = fresh("race")
            results = await asyncio.gather(
                *(create(bucket, key, str(racer)) for racer in range(RACERS))
            )
            (winner,) = [racer for racer in range(RACERS) if isinstance(results[racer], Created)]
            assert await word_in(bucket, key) == str(winner)
            won = results[winner]
            assert isinstance(won, Created)
            seen = won.version
            contest = await asyncio.gather(
                *(replaced(bucket, key, seen, str(racer)) for racer in range(RACERS))
            )
            (winner,) = [racer for racer in range(RACERS) if isinstance(contest[racer], Replaced)]
            assert await word_in(bucket, key) == str(winner)


async def _replace_current(store: BucketConfig, key: str) -> None:
    bucket = Bucket(store)
    found = await bucket.get(key)
    assert isinstance(found, Found)
    assert isinstance(await replaced(bucket, key, found.version, "overtaking"), Replaced)
