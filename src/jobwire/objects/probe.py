"""Checks that the store implements conditional writes.

Called at every start, and by `jobwire doctor`. Some stores accept the conditions of a write and
ignore them; there, two writers could both win. The probe creates a few objects under a random key
and deletes them.
"""

from __future__ import annotations

import asyncio
from typing import Final

from jobwire.objects.errors import StoreRefused
from jobwire.objects.results import Changed, Created, Exists, Found, Missing, Replaced
from jobwire.objects.store import Bucket, Compose
from jobwire.objects.write_history import Version, new_writer

PROBE_PREFIX: Final = ".jobwire-probe/"
_TYPE: Final = "text/plain; charset=utf-8"


async def probe(bucket: Bucket, *, racers: int = 4) -> None:
    """Return if the store behaves as required; raise `StoreRefused` with the first failed check.

    `racers` concurrent creates detect a store that checks and writes in two steps; 0 skips this.
    """
    nonce = new_writer()
    key, race_key = f"{PROBE_PREFIX}{nonce}", f"{PROBE_PREFIX}{nonce}-race"
    try:
        await _check_conditions(bucket, key)
        if racers:
            await _race(bucket, race_key, racers)
    finally:
        await bucket.delete(key)
        if racers:
            await bucket.delete(race_key)
    if not isinstance(await bucket.get(key), Missing):
        raise StoreRefused(
            bucket.config.where, "delete an object", "it still exists after the delete"
        )


async def _check_conditions(bucket: Bucket, key: str) -> None:
    where = bucket.config.where

    first = await bucket.create(key, _text("first"), content_type=_TYPE)
    if not isinstance(first, Created):
        raise StoreRefused(where, "create a new key", "it replied that a random key exists")

    second = await bucket.create(key, _text("second"), content_type=_TYPE)
    if not isinstance(second, Exists):
        raise StoreRefused(
            where, "create only if absent", "it accepted two creates (If-None-Match is ignored)"
        )
    _check_content(bucket, second.found, first.version, "first")

    replaced = await bucket.replace(
        key, _text("replaced"), seen=second.found.version, content_type=_TYPE
    )
    if not isinstance(replaced, Replaced):
        raise StoreRefused(where, "replace if unchanged", "it refused an unchanged version")

    stale = await bucket.replace(key, _text("stale"), seen=first.version, content_type=_TYPE)
    if not isinstance(stale, Changed):
        raise StoreRefused(
            where, "replace only if unchanged", "it accepted a stale ETag (If-Match is ignored)"
        )
    _check_content(bucket, stale.found, replaced.version, "replaced")

    if await bucket.range(key, 0, 1) != b"r":
        raise StoreRefused(where, "read a range", "it sent other bytes")


def _check_content(bucket: Bucket, found: Found, version: Version, word: str) -> None:
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
            f"{winners} of {racers} concurrent creates won",
        )


def _text(word: str) -> Compose:
    return lambda writer: f"{word} {writer}".encode()
