"""Writes that decide: one winner of many, and a winner who always learns it (P-10, P-12)."""

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


def says(word: str) -> Callable[[str], bytes]:
    return lambda writer: f"{word} {writer}".encode()


async def create(bucket: Bucket, key: str, word: str = "created") -> Created | Exists:
    return await bucket.create(key, says(word), content_type=TEXT)


async def created(bucket: Bucket, key: str) -> Version:
    answer = await create(bucket, key)
    assert isinstance(answer, Created)
    return answer.version


async def replaced(
    bucket: Bucket, key: str, seen: Version, word: str = "replaced"
) -> Replaced | Changed | Missing:
    return await bucket.replace(key, says(word), seen=seen, content_type=TEXT)


async def word_in(bucket: Bucket, key: str) -> str:
    found = await bucket.get(key)
    assert isinstance(found, Found)
    return found.body.decode().split()[0]


def rounds(store: BucketConfig, moto: BucketConfig) -> int:
    """Contended conditional writes wait whole seconds on SeaweedFS: one round there."""
    return 10 if store == moto else 1


@clause("P-10")
async def test_p10_of_twenty_creates_at_once_one_wins(
    store: BucketConfig, moto: BucketConfig, fresh: Fresh
) -> None:
    bucket = Bucket(store)
    for _ in range(rounds(store, moto)):
        key = fresh("race")
        answers = await asyncio.gather(
            *(create(bucket, key, str(racer)) for racer in range(RACERS))
        )
        winners = [racer for racer in range(RACERS) if isinstance(answers[racer], Created)]
        assert len(winners) == 1
        assert await word_in(bucket, key) == str(winners[0])
        for answer in answers:
            if isinstance(answer, Exists):
                assert answer.found.body.startswith(str(winners[0]).encode())


@clause("P-10")
async def test_p10_of_twenty_replacements_at_once_one_wins(
    store: BucketConfig, moto: BucketConfig, fresh: Fresh
) -> None:
    bucket = Bucket(store)
    for _ in range(rounds(store, moto)):
        key = fresh("race")
        seen = await created(bucket, key)
        answers = await asyncio.gather(
            *(replaced(bucket, key, seen, str(racer)) for racer in range(RACERS))
        )
        winners = [racer for racer in range(RACERS) if isinstance(answers[racer], Replaced)]
        assert len(winners) == 1
        assert await word_in(bucket, key) == str(winners[0])
        assert all(isinstance(answer, Replaced | Changed) for answer in answers)


@clause("P-10")
async def test_p10_equal_words_do_not_make_two_winners(bucket: Bucket, fresh: Fresh) -> None:
    """An ETag is the content's MD5: what is equal to the byte would count as unchanged."""
    key = fresh()
    seen = await created(bucket, key)
    first = await replaced(bucket, key, seen, "created")
    second = await replaced(bucket, key, seen, "created")
    assert isinstance(first, Replaced)
    assert isinstance(second, Changed)
    with pytest.raises(ValueError, match="two writers could both replace"):
        await bucket.replace(key, lambda _writer: b"same", seen=seen, content_type=TEXT)


@clause("P-10")
async def test_p10_the_loser_gets_what_to_merge_with(bucket: Bucket, fresh: Fresh) -> None:
    key = fresh()
    seen = await created(bucket, key)
    mine = await replaced(bucket, key, seen, "one")
    assert isinstance(mine, Replaced)
    late = await replaced(bucket, key, seen, "late")
    assert isinstance(late, Changed)
    assert late.found.body.startswith(b"one")
    assert late.found.version == mine.version
    merged = await replaced(bucket, key, late.found.version, "merged")
    assert isinstance(merged, Replaced)
    again = await create(bucket, key, "again")
    assert isinstance(again, Exists)
    assert again.found.body.startswith(b"merged")


async def test_nothing_can_be_replaced_where_nothing_is(bucket: Bucket, fresh: Fresh) -> None:
    key = fresh()
    assert await replaced(bucket, key, Version('"never"')) == Missing(key)


async def test_what_others_wrote_can_be_replaced_if_unchanged(bucket: Bucket, fresh: Fresh) -> None:
    """Another program's object has no trail; its ETag alone must hold."""
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
async def test_p12_a_winner_learns_it_though_the_answer_was_lost(
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
async def test_p12_an_answer_that_does_not_come_in_time_is_looked_up(
    store: BucketConfig, fresh: Fresh
) -> None:
    key, over = fresh(), threading.Event()

    def stored_but_silent(forward: Forward) -> Reply | None:
        forward()
        over.wait(30)
        return None

    with S3Proxy(store) as proxy:
        bucket = Bucket(replace(proxy.config, timeout_s=1.0))
        proxy.plan(stored_but_silent)
        try:
            assert isinstance(await create(bucket, key), Created)
        finally:
            over.set()
        assert proxy.writes == 1


@clause("P-12")
@pytest.mark.parametrize("mishap", LOST)
async def test_p12_a_loser_learns_it_though_the_answer_was_lost(
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
async def test_p12_what_never_arrived_is_sent_again(
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
async def test_p12_a_write_that_arrives_late_is_still_one_write(
    store: BucketConfig, fresh: Fresh
) -> None:
    """Sent, timed out, not there when we looked, and landed just before we sent it again."""
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
async def test_p12_a_winner_who_was_overtaken_still_learns_that_it_won(
    store: BucketConfig, fresh: Fresh
) -> None:
    """Our write counted, its answer was lost, and somebody replaced it before we could look."""
    key = fresh()

    def stored_then_replaced(forward: Forward) -> Reply | None:
        forward()
        asyncio.run(_replace_whatever_is_there(store, key))
        return None

    with S3Proxy(store) as proxy:
        bucket = Bucket(proxy.config)
        proxy.plan(stored_then_replaced)
        mine = await create(bucket, key)
        assert isinstance(mine, Created)
        # It is no longer what we wrote, so we may not write over it unseen.
        after = await replaced(bucket, key, mine.version)
        assert isinstance(after, Changed)
        assert after.found.body.startswith(b"overtaking")
        proxy.plan(stored_then_replaced)
        mine = await replaced(bucket, key, after.found.version)
        assert isinstance(mine, Replaced)
        assert isinstance(await replaced(bucket, key, mine.version), Changed)


@clause("P-12")
async def test_p12_what_reading_cannot_tell_is_not_guessed(
    store: BucketConfig, fresh: Fresh
) -> None:
    """Somebody who leaves no trail wrote over whatever there was."""
    key = fresh()

    def stored_then_trampled(forward: Forward) -> Reply | None:
        forward()
        boto_client(store).put_object(Bucket=store.bucket, Key=key, Body=b"boots")
        return None

    with S3Proxy(store) as proxy:
        proxy.plan(stored_then_trampled)
        with pytest.raises(AnswerLost, match=rf"read {key} again and decide anew"):
            await create(Bucket(proxy.config), key)


@clause("P-12")
async def test_p12_a_store_that_stays_away_leaves_the_outcome_open(
    moto: BucketConfig, fresh: Fresh
) -> None:
    with S3Proxy(moto) as deaf, S3Proxy(moto) as torn:
        deaf.always(lambda _number: dropped)
        torn.always(lambda _number: conflict)
        gone = replace(moto, endpoint="http://127.0.0.1:9")
        errors = await asyncio.gather(
            *(create(Bucket(each), fresh()) for each in (deaf.config, torn.config, gone)),
            return_exceptions=True,
        )
    assert all(isinstance(error, Unavailable) for error in errors)
    assert re.search("did not answer .*; gave up after 6 tries", str(errors[0]))
    assert re.search("answered 409 ConditionalRequestConflict .* after 6 tries", str(errors[1]))
    assert str(errors[2]).endswith("was written is unknown")


@clause("P-10", "P-12")
async def test_p12_a_race_with_every_second_answer_lost_has_one_winner_who_knows_it(
    moto: BucketConfig, fresh: Fresh
) -> None:
    faults = [*LOST, *NOT_DONE]
    with S3Proxy(moto) as proxy:
        bucket = Bucket(proxy.config)
        proxy.always(lambda number: faults[number // 2 % len(faults)] if number % 2 else None)
        for _ in range(3):
            key = fresh("race")
            answers = await asyncio.gather(
                *(create(bucket, key, str(racer)) for racer in range(RACERS))
            )
            (winner,) = [racer for racer in range(RACERS) if isinstance(answers[racer], Created)]
            assert await word_in(bucket, key) == str(winner)
            won = answers[winner]
            assert isinstance(won, Created)
            seen = won.version
            contest = await asyncio.gather(
                *(replaced(bucket, key, seen, str(racer)) for racer in range(RACERS))
            )
            (winner,) = [racer for racer in range(RACERS) if isinstance(contest[racer], Replaced)]
            assert await word_in(bucket, key) == str(winner)


async def _replace_whatever_is_there(store: BucketConfig, key: str) -> None:
    bucket = Bucket(store)
    found = await bucket.get(key)
    assert isinstance(found, Found)
    assert isinstance(await replaced(bucket, key, found.version, "overtaking"), Replaced)
