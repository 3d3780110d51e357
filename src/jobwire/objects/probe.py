"""Does this store keep the promises that we stand on? Asked once, before anything is trusted.

Called at every start, and by `jobwire doctor`. Some stores take the conditions of a write and
ignore them without a word; on such a store every decision would be made twice. The probe makes a
few objects of its own under a random key, and removes them.
"""

from __future__ import annotations

import asyncio
from typing import Final

from jobwire.objects.answers import Changed, Created, Exists, Found, Missing, Replaced
from jobwire.objects.errors import StoreRefused
from jobwire.objects.store import Bucket, Compose
from jobwire.objects.write_history import Version, new_writer

PROBE_PREFIX: Final = ".jobwire-probe/"
_TYPE: Final = "text/plain; charset=utf-8"


async def probe(bucket: Bucket, *, racers: int = 4) -> None:
    """Return if the store keeps its promises; raise `StoreRefused` naming the broken one.

    `racers` creates at once find a store that looks first and writes then; 0 leaves that out.
    """
    nonce = new_writer()
    one, two = f"{PROBE_PREFIX}{nonce}", f"{PROBE_PREFIX}{nonce}-race"
    try:
        await _one_by_one(bucket, one)
        if racers:
            await _race(bucket, two, racers)
    finally:
        await bucket.delete(one)
        if racers:
            await bucket.delete(two)
    if not isinstance(await bucket.get(one), Missing):
        raise StoreRefused(bucket.config.where, "what was removed is gone", "it is still there")


async def _one_by_one(bucket: Bucket, key: str) -> None:
    where = bucket.config.where

    first = await bucket.create(key, _text("first"), content_type=_TYPE)
    if not isinstance(first, Created):
        raise StoreRefused(where, "a new key can be created", "it said that a random key exists")

    second = await bucket.create(key, _text("second"), content_type=_TYPE)
    if not isinstance(second, Exists):
        raise StoreRefused(
            where, "create only if absent", "it said yes twice (If-None-Match is ignored)"
        )
    _same_as_written(bucket, second.found, first.version, "first")

    replaced = await bucket.replace(
        key, _text("replaced"), seen=second.found.version, content_type=_TYPE
    )
    if not isinstance(replaced, Replaced):
        raise StoreRefused(where, "replace if unchanged", "it refused although nothing had changed")

    stale = await bucket.replace(key, _text("stale"), seen=first.version, content_type=_TYPE)
    if not isinstance(stale, Changed):
        raise StoreRefused(
            where, "replace only if unchanged", "it took a stale ETag (If-Match is ignored)"
        )
    _same_as_written(bucket, stale.found, replaced.version, "replaced")

    if await bucket.range(key, 0, 1) != b"r":
        raise StoreRefused(where, "read a part", "it sent other bytes than were asked for")


def _same_as_written(bucket: Bucket, found: Found, version: Version, word: str) -> None:
    if not found.body.startswith(word.encode()):
        raise StoreRefused(
            bucket.config.where, "read what was written last", "it returned other bytes"
        )
    if found.version != version:
        raise StoreRefused(
            bucket.config.where,
            "keep ETag and user metadata with the object",
            f"it returned {found.version} for {version}",
        )


async def _race(bucket: Bucket, key: str, racers: int) -> None:
    answers = await asyncio.gather(
        *(bucket.create(key, _text(str(racer)), content_type=_TYPE) for racer in range(racers))
    )
    winners = sum(isinstance(answer, Created) for answer in answers)
    if winners != 1:
        raise StoreRefused(
            bucket.config.where,
            "one of many creates wins",
            f"{winners} of {racers} at once were told that they had won",
        )


def _text(word: str) -> Compose:
    return lambda writer: f"{word} {writer}".encode()
