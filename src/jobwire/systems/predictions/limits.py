"""Limits of users, chats and albums, kept in `users/{chat_id}.json` by conditional writes (P-19).

Only the member `jobwire` of that object is ours; preferences and whatever else others keep there
survive. A task that is counted twice, or released twice, counts once: entries go by task id, and
each expires by itself, so a crash leaks nothing for long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from jobwire.job.clock import Clock
from jobwire.objects import Bucket, Found, TooLarge, Unavailable, Version
from jobwire.systems.predictions.contract import TaskErrorCode, user_key
from jobwire.systems.predictions.intent import Photo
from jobwire.systems.predictions.json_values import dumps, items, loads, mapping
from jobwire.systems.predictions.records import write_json

log: Final = logging.getLogger("jobwire.predictions")

_HOUR_MS: Final = 3_600_000
_MAX_BYTES: Final = 1024 * 1024
_MAX_ALBUMS: Final = 20
_MAX_ROUNDS: Final = 30
_OURS: Final = "jobwire"

Usage = dict[str, dict[str, object]]


@dataclass(frozen=True, slots=True)
class Admitted:
    """The photo is counted; `caption` is its own, else its album's."""

    caption: str


@dataclass(frozen=True, slots=True)
class OverLimit:
    """The photo breaks a limit; `quiet` if the user has been notified for its album."""

    code: TaskErrorCode
    quiet: bool = False


class Limits:
    """`in_flight` tasks per chat, `per_hour` photos per user, `album` photos of one album.

    0 means without limit.
    """

    def __init__(
        self,
        bucket: Bucket,
        clock: Clock,
        *,
        in_flight: int,
        per_hour: int,
        life_s: int,
        album: int = 0,
    ) -> None:
        self._bucket = bucket
        self._clock = clock
        self._in_flight = in_flight
        self._per_hour = per_hour
        self._album = album
        self._life_ms = life_s * 1000

    @property
    def enabled(self) -> bool:
        return bool(self._in_flight or self._per_hour)

    async def admit(self, photo: Photo, tid: str) -> Admitted | OverLimit:
        """Count a task, or return which limit it would break."""
        answer: Admitted | OverLimit = Admitted(photo.caption)

        def count(usage: Usage, now_ms: int) -> bool:
            nonlocal answer
            flying, recent = usage["in_flight"], usage["recent"]
            album = _album(usage, photo, now_ms) if photo.album else None
            answer = Admitted(photo.caption or (album.caption if album else ""))
            if tid in flying:
                return False
            user_times = cast("list[int]", recent.get(str(photo.user_id), []))
            code = None
            if album and self._album and len({*album.tids, tid}) > self._album:
                code = TaskErrorCode.TOO_MANY_IN_ALBUM
            elif self._in_flight and len(flying) >= self._in_flight:
                code = TaskErrorCode.TOO_MANY_AT_ONCE
            elif self._per_hour and len(user_times) >= self._per_hour:
                code = TaskErrorCode.TOO_MANY_PER_HOUR
            if code is not None:
                quiet = album is not None and album.notified not in ("", tid)
                answer = OverLimit(code, quiet=quiet)
                if album is None or album.notified:
                    return False
                album.notified = tid
                return album.write(usage)
            flying[tid] = now_ms + self._life_ms
            recent[str(photo.user_id)] = [*user_times, now_ms]
            if album:
                album.tids.append(tid)
                album.write(usage)
            return True

        if self.enabled or photo.album:
            await self._change(photo.chat_id, count)
        return answer

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
            log.warning("limits not counted error=%(error)s", {"error": error})
            return
        for _ in range(_MAX_ROUNDS):
            now_ms = self._clock.now_ms()
            seen = found.version if isinstance(found, Found) else None
            document: Mapping[str, object] | None
            document = loads(found.body) if isinstance(found, Found) else {}
            if document is None:  # not ours to replace
                log.warning("limits not counted: the object is not JSON key=%(key)s", {"key": key})
                return
            usage = _usage(mapping(document.get(_OURS)), now_ms)
            if not change(usage, now_ms):
                return

            def compose(
                writer: str, document: Mapping[str, object] = document, usage: Usage = usage
            ) -> bytes:
                ours = {**usage, "writer": writer}
                return dumps({**document, _OURS: ours})

            written = await write_json(self._bucket, key, compose, seen)
            if isinstance(written, Version):
                return
            found = written
        raise Unavailable(f"{key} was changed by other processes {_MAX_ROUNDS} times")


@dataclass(slots=True)
class _Album:
    """One album: its caption, the tasks counted, the task whose user read of the limit."""

    name: str
    until_ms: int
    caption: str
    tids: list[str]
    notified: str

    def write(self, usage: Usage) -> bool:
        usage["albums"][self.name] = [self.until_ms, self.caption, self.notified, *self.tids]
        return True


def _album(usage: Usage, photo: Photo, now_ms: int) -> _Album:
    known = cast("list[object]", usage["albums"].get(photo.album, []))
    until_ms, caption, notified, *tids = [*known, *["", "", ""][len(known) :]]
    return _Album(
        photo.album,
        until_ms if isinstance(until_ms, int) else now_ms + _HOUR_MS,
        photo.caption or str(caption),
        [str(each) for each in tids],
        str(notified),
    )


def _usage(ours: Mapping[str, object], now_ms: int) -> Usage:
    """What counts now: tasks that have not expired, photos of the last hour."""
    in_flight, recent, albums = (
        mapping(ours.get(name)).items() for name in ("in_flight", "recent", "albums")
    )
    times = {
        user: [each for each in items(listed) if _is_after(each, now_ms - _HOUR_MS)]
        for user, listed in recent
    }
    return {
        "in_flight": {tid: until for tid, until in in_flight if _is_after(until, now_ms)},
        "recent": {user: kept for user, kept in times.items() if kept},
        "albums": {
            name: known
            for name, known in list(albums)[-_MAX_ALBUMS:]
            if _is_after(next(iter(items(known)), None), now_ms)
        },
    }


def _is_after(time_ms: object, limit_ms: int) -> bool:
    return isinstance(time_ms, int) and time_ms > limit_ms
