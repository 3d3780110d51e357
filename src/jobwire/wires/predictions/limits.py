"""Limits of users and chats, kept in `users/{chat_id}.json` by conditional writes (P-19).

Only the member `jobwire` of that object is ours; preferences and whatever else others keep there
survive. A task that is counted twice, or released twice, counts once: entries go by task id, and
each expires by itself, so a crash leaks nothing for long.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Final, cast

from jobwire.job.clock import Clock
from jobwire.objects import Bucket, Changed, Created, Exists, Found, Replaced, TooLarge, Unavailable
from jobwire.wires.predictions.contract import JSON_TYPE, ErrorCode, user_key

log: Final = logging.getLogger("jobwire.predictions")

_HOUR_MS: Final = 3_600_000
_MAX_BYTES: Final = 1024 * 1024
_MAX_ROUNDS: Final = 30
_OURS: Final = "jobwire"

Usage = dict[str, dict[str, object]]


class Limits:
    """`in_flight` tasks per chat and `per_hour` photos per user; 0 means without limit."""

    def __init__(
        self, bucket: Bucket, clock: Clock, *, in_flight: int, per_hour: int, life_s: int
    ) -> None:
        self._bucket = bucket
        self._clock = clock
        self._in_flight = in_flight
        self._per_hour = per_hour
        self._life_ms = life_s * 1000

    @property
    def enabled(self) -> bool:
        return bool(self._in_flight or self._per_hour)

    async def admit(self, chat_id: int, user_id: int, tid: str) -> ErrorCode | None:
        """Count a task, or return the limit it would break."""
        refused: ErrorCode | None = None

        def count(usage: Usage, now_ms: int) -> bool:
            nonlocal refused
            refused = None
            flying, recent = usage["in_flight"], usage["recent"]
            if tid in flying:
                return False
            mine = cast("list[int]", recent.get(str(user_id), []))
            if self._in_flight and len(flying) >= self._in_flight:
                refused = ErrorCode.TOO_MANY_AT_ONCE
            elif self._per_hour and len(mine) >= self._per_hour:
                refused = ErrorCode.TOO_MANY_PER_HOUR
            if refused:
                return False
            flying[tid] = now_ms + self._life_ms
            recent[str(user_id)] = [*mine, now_ms]
            return True

        if self.enabled:
            await self._change(chat_id, count)
        return refused

    async def release(self, chat_id: int, tid: str) -> None:
        """A task is no longer in flight."""

        def remove(usage: Usage, _now_ms: int) -> bool:
            return usage["in_flight"].pop(tid, None) is not None

        if self.enabled:
            await self._change(chat_id, remove)

    async def _change(self, chat_id: int, change: Callable[[Usage, int], bool]) -> None:
        key = user_key(chat_id)
        try:
            found = await self._bucket.get(key, max_bytes=_MAX_BYTES)
        except TooLarge as error:
            log.warning("limits not counted: %s", error)
            return
        for _ in range(_MAX_ROUNDS):
            now_ms = self._clock.now_ms()
            document = _document(found.body, chat_id) if isinstance(found, Found) else {}
            if document is None:
                return
            usage = _usage(document.get(_OURS), now_ms)
            if not change(usage, now_ms):
                return

            def compose(
                writer: str, document: dict[str, object] = document, usage: Usage = usage
            ) -> bytes:
                ours = {**usage, "writer": writer}
                return json.dumps({**document, _OURS: ours}, ensure_ascii=False).encode()

            if isinstance(found, Found):
                answer = await self._bucket.replace(
                    key, compose, seen=found.version, content_type=JSON_TYPE
                )
            else:
                answer = await self._bucket.create(key, compose, content_type=JSON_TYPE)
            match answer:
                case Created() | Replaced():
                    return
                case Exists(now) | Changed(now):
                    found = now
                case _:
                    found = answer  # removed meanwhile: create it
        raise Unavailable(f"{key} changed {_MAX_ROUNDS} times under us")


def _document(body: bytes, chat_id: int) -> dict[str, object] | None:
    """The object as it is; None if it is not JSON, and then it is not ours to replace."""
    try:
        loaded: object = json.loads(body)
    except (ValueError, RecursionError):
        loaded = None
    if not isinstance(loaded, dict):
        log.warning("limits not counted: %s is not a JSON object", user_key(chat_id))
        return None
    return cast("dict[str, object]", loaded)


def _usage(ours: object, now_ms: int) -> Usage:
    """What counts now: tasks that have not expired, photos of the last hour."""
    given = cast("dict[str, object]", ours) if isinstance(ours, dict) else {}
    flying, recent = given.get("in_flight"), given.get("recent")
    usage: Usage = {"in_flight": {}, "recent": {}}
    for tid, until_ms in cast(
        "dict[str, object]", flying if isinstance(flying, dict) else {}
    ).items():
        if isinstance(until_ms, int) and until_ms > now_ms:
            usage["in_flight"][tid] = until_ms
    for user, times in cast(
        "dict[str, object]", recent if isinstance(recent, dict) else {}
    ).items():
        kept = [
            each
            for each in cast("list[object]", times if isinstance(times, list) else [])
            if isinstance(each, int) and each > now_ms - _HOUR_MS
        ]
        if kept:
            usage["recent"][user] = kept
    return usage
