"""Deletes what the lifecycle rules would delete, for stores without lifecycle.

Called by `jobwire lifecycle sweep`, from a timer. `expired` decides, the rest lists and deletes.
Concurrent sweeps do no harm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from jobwire.objects.lifecycle import ABORT_DAYS, NONCURRENT_DAYS, Rule
from jobwire.objects.store import Bucket
from jobwire.objects.versions import (
    ObjectVersion,
    abort,
    erase,
    is_versioned,
    uploads,
    versions,
)

_BATCH: Final = 1000


@dataclass(frozen=True, slots=True)
class Swept:
    """Numbers of deleted objects (or versions) and aborted uploads."""

    objects: int
    uploads: int


async def sweep(bucket: Bucket, rules: Sequence[Rule], now: datetime) -> Swept:
    """Delete everything that has expired by one of the rules."""
    versioned = await is_versioned(bucket.calls)
    objects = aborted = 0
    for rule in rules:
        old = _old_versions(bucket, rule, now) if versioned else _old_objects(bucket, rule, now)
        batch: list[tuple[str, str]] = []
        async for target in old:
            batch.append(target)
            if len(batch) == _BATCH:
                await erase(bucket.calls, batch)
                objects += len(batch)
                batch = []
        if batch:
            await erase(bucket.calls, batch)
            objects += len(batch)
        cutoff = now - timedelta(days=ABORT_DAYS)
        for upload in [each async for each in uploads(bucket.calls, rule.prefix)]:
            if upload.begun_at <= cutoff:
                await abort(bucket.calls, upload)
                aborted += 1
    return Swept(objects, aborted)


def expired(history: Sequence[ObjectVersion], rule: Rule, now: datetime) -> list[ObjectVersion]:
    """The expired versions of one object. Pure.

    The newest version expires by the rule's days, with all older ones. A replaced version expires
    soon after its replacement. A delete marker without older versions expires too.
    """
    newest_first = sorted(history, key=lambda each: (each.latest, each.modified_at), reverse=True)
    newest = newest_first[0]
    if newest.modified_at <= now - timedelta(days=rule.days):
        return list(history)
    replaced_before = now - timedelta(days=NONCURRENT_DAYS)
    old = [older for newer, older in pairwise(newest_first) if newer.modified_at <= replaced_before]
    if newest.marker and len(old) == len(history) - 1 and newest.modified_at <= replaced_before:
        old.append(newest)
    return old


async def _old_objects(bucket: Bucket, rule: Rule, now: datetime) -> AsyncIterator[tuple[str, str]]:
    cutoff = now - timedelta(days=rule.days)
    async for entry in bucket.list(rule.prefix):
        if entry.modified_at <= cutoff:
            yield entry.key, ""


async def _old_versions(
    bucket: Bucket, rule: Rule, now: datetime
) -> AsyncIterator[tuple[str, str]]:
    histories: dict[str, list[ObjectVersion]] = {}
    async for version in versions(bucket.calls, rule.prefix):
        histories.setdefault(version.key, []).append(version)
    for key, history in histories.items():
        for version in expired(history, rule, now):
            yield key, version.version_id
