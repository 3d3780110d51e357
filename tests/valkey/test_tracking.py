"""The tracking reader: keys are read again when they change, also after a lost connection."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

import pytest
from redis import Redis

from jobwire.local import LocalValkey
from jobwire.valkey import Reply
from jobwire.valkey.tracking import TrackedKey, TrackingReader
from tests.support import Fresh, Proxy, wait_until


class Replies:
    """A follower of strings that keeps every reply."""

    def __init__(self) -> None:
        self.of: dict[str, list[Reply]] = {}
        self.others: list[str] = []
        self.reader = TrackingReader[TrackedKey](
            lambda tracked: ("GET", tracked.key),
            lambda tracked, reply: self.of[tracked.key].append(reply),
            on_other=self.others.append,
        )

    def follow(self, key: str) -> TrackedKey:
        tracked = TrackedKey(key)
        self.of[key] = []
        self.reader.add(tracked)
        self.reader.mark(tracked)
        return tracked

    async def until(self, key: str, *replies: Reply) -> None:
        await wait_until(lambda: self.of[key] == [*replies], f"the replies {replies}")


@contextlib.asynccontextmanager
async def following(url: str) -> AsyncGenerator[Replies]:
    replies = Replies()
    async with replies.reader.running(url, "tests-tracking"):
        yield replies


async def test_t02_a_key_whose_read_fails_delays_no_other(
    valkey: LocalValkey,
    plain: Redis,
    fresh: Fresh,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("jobwire.valkey.tracking._PAUSE_S", 3600.0)
    failing, key, user = fresh("failing"), fresh("key"), fresh("user")
    plain.acl_setuser(user, enabled=True, nopass=True, categories=["+@all"], keys=[key], reset=True)
    try:
        async with following(valkey.url.replace("://", f"://{user}:any@")) as replies:
            replies.follow(failing)
            await wait_until(lambda: "key not read" in caplog.text, "the refusal")
            replies.follow(key)
            await replies.until(key, None)
    finally:
        plain.acl_deluser(user)


async def test_t02_a_tracked_key_is_read_again_after_each_change(
    valkey: LocalValkey, plain: Redis, fresh: Fresh
) -> None:
    key, other = fresh("key"), fresh("other")
    async with following(valkey.url) as replies:
        tracked = replies.follow(key)
        await replies.until(key, None)
        plain.set(key, "one", ex=60)
        await replies.until(key, None, "one")
        plain.delete(key)
        await replies.until(key, None, "one", None)
        await replies.reader.connection.call("GET", other)
        plain.set(other, "read directly", ex=60)
        await wait_until(lambda: replies.others, "the other key's change")
        assert replies.others == [other]
        replies.reader.remove(tracked)
        assert len(replies.reader) == 0
        plain.set(key, "two", ex=60)
        await wait_until(lambda: key in replies.others, "the change of a key no longer followed")
    assert replies.of[key] == [None, "one", None]


async def test_t02_a_key_of_another_type_is_read_as_none(
    valkey: LocalValkey, plain: Redis, fresh: Fresh
) -> None:
    key = fresh("key")
    plain.hset(key, "field", "value")
    plain.expire(key, 60)
    async with following(valkey.url) as replies:
        replies.follow(key)
        await replies.until(key, None)
        plain.set(key, "text", ex=60)
        await replies.until(key, None, "text")


async def test_t02_changes_during_a_lost_connection_are_read_after_it(
    valkey: LocalValkey, proxy: Proxy, plain: Redis, fresh: Fresh
) -> None:
    key = fresh("key")
    async with following(proxy.url(valkey.url)) as replies:
        replies.follow(key)
        await replies.until(key, None)
        proxy.refuse()
        plain.set(key, "meanwhile", ex=60)
        proxy.accept()
        await wait_until(lambda: replies.of[key][-1] == "meanwhile", "the value")
        proxy.cut_reply("GET")
        plain.set(key, "its reply is lost", ex=60)
        await wait_until(lambda: replies.of[key][-1] == "its reply is lost", "the value")


async def test_t02_a_reply_for_a_key_no_longer_followed_is_dropped(
    valkey: LocalValkey, proxy: Proxy, plain: Redis, fresh: Fresh
) -> None:
    key = fresh("key")
    plain.set(key, "value", ex=60)
    async with following(proxy.url(valkey.url)) as replies:
        with proxy.hold("GET") as hold:
            first = replies.follow(key)
            await hold.until_reached()
            replies.reader.remove(first)
            replies.follow(key)
        await replies.until(key, "value")
        assert len(proxy.seen("GET")) == 2
