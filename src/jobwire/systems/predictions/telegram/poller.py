"""Updates by `getUpdates`, where no public address exists; one poller at a time (P-26).

Telegram cuts off whichever of two pollers asked first, so two of them would starve each other. A
lease in the bucket decides who polls; the others wait for it. Updates are confirmed to Telegram
only after their photos are recorded.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from jobwire.json_depth import bounded
from jobwire.objects import Bucket, Found, Missing, ObjectsError, Unavailable, Version
from jobwire.systems.predictions.contract import POLLER_KEY
from jobwire.systems.predictions.http_client import NoAnswer
from jobwire.systems.predictions.json_values import integer, items, mapping
from jobwire.systems.predictions.records import write_json
from jobwire.systems.predictions.telegram.api import ApiRefusal, ApiResult
from jobwire.systems.predictions.telegram.bot import TelegramBot
from jobwire.systems.predictions.telegram.chat_lanes import ChatLanes

log: Final = logging.getLogger("jobwire.predictions")

_WAIT_S: Final = 25  # how long Telegram holds a request without updates
_LEASE_S: Final = 90
_ASK_AGAIN_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 60.0
_AT_ONCE: Final = 16
_MOST_WORKS: Final = 64
_ALLOWED: Final = ("message",)
_MAX_LEASE_BYTES: Final = 4096


T = TypeVar("T")


class PollingRefused(Exception):
    """Telegram does not let this bot poll; the message says what to do."""


class PollerLease(msgspec.Struct, frozen=True):
    """Who polls for updates, and until when no other process does."""

    poller: str = ""
    until_ms: int = 0
    writer: str = ""

    def held_by_other(self, name: str, now_ms: int) -> bool:
        """Whether another poller than this one has the lease."""
        return self.poller != name and self.until_ms > now_ms


_decode_lease: Final = bounded(msgspec.json.Decoder(PollerLease).decode)


async def read_lease(bucket: Bucket) -> tuple[Found | Missing, PollerLease]:
    """The lease in the bucket; one that cannot be read counts as expired."""
    found = await bucket.get(POLLER_KEY, max_bytes=_MAX_LEASE_BYTES)
    if isinstance(found, Found):
        with suppress(msgspec.MsgspecError):
            return found, _decode_lease(found.body)
    return found, PollerLease()


class UpdatePoller:
    """Polls while it has the lease. `wait_s` is how long Telegram holds a request."""

    def __init__(self, bot: TelegramBot, *, wait_s: int = _WAIT_S, lease_s: int = _LEASE_S) -> None:
        self._bot = bot
        self._deps = bot.flow.deps
        self._wait_s = wait_s
        self._lease_ms = lease_s * 1000
        self._name = secrets.token_hex(8)
        self._until_ms = 0
        self._offset: int | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Poll until `stop`, and end what was begun; PollingRefused where waiting cannot help."""
        await self._with_lanes(lambda lanes: self._run(lanes, stop))

    async def poll_once(self) -> float | None:
        """Take what Telegram has, and handle it; None if all went well, else how long to wait."""
        return await self._with_lanes(self._poll_once)

    async def _with_lanes(self, work: Callable[[ChatLanes], Awaitable[T]]) -> T:
        """Run something that begins works, and wait for these; its own error is raised then."""
        result: T | Exception
        async with asyncio.TaskGroup() as group:
            try:
                result = await work(ChatLanes(group, _MOST_WORKS))
            except Exception as error:  # noqa: BLE001 - raised below, not as one of a group
                result = error
        if isinstance(result, Exception):
            raise result
        return result

    async def _poll_once(self, lanes: ChatLanes) -> float | None:
        return await self._take_answer(lanes, await self._ask())

    async def _run(self, lanes: ChatLanes, stop: asyncio.Event) -> None:
        pause_s, waits = 1.0, False
        try:
            while not stop.is_set():
                try:
                    if not await self.hold_lease():
                        if not waits:
                            log.info(
                                "another process polls for updates; waiting for its lease to end"
                            )
                        waits = True
                        await pause(stop, _ASK_AGAIN_S)
                        continue
                    waits = False
                    wait_s = await self._poll_until(lanes, stop)
                    if wait_s is None:
                        pause_s = 1.0
                        continue
                except ObjectsError as error:
                    log.warning("updates not read error=%(error)s; will retry", {"error": error})
                    wait_s = pause_s
                await pause(stop, max(wait_s, pause_s))
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        finally:
            await self._release()

    async def _poll_until(self, lanes: ChatLanes, stop: asyncio.Event) -> float | None:
        """Ask once; `stop` breaks off the waiting, never the taking of updates."""
        request, stopping = asyncio.create_task(self._ask()), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((request, stopping), return_when=asyncio.FIRST_COMPLETED)
            return await self._take_answer(lanes, await request) if request.done() else None
        finally:
            request.cancel()
            stopping.cancel()

    async def _ask(self) -> ApiResult | ApiRefusal | NoAnswer:
        params: dict[str, object] = {"timeout": self._wait_s, "allowed_updates": list(_ALLOWED)}
        if self._offset is not None:
            params["offset"] = self._offset
        return await self._bot.api.call("getUpdates", params, timeout_s=self._wait_s + 15.0)

    async def _take_answer(
        self, lanes: ChatLanes, answer: ApiResult | ApiRefusal | NoAnswer
    ) -> float | None:
        if isinstance(answer, ApiResult):
            await self._take_all(lanes, items(answer.value))
            return None
        if isinstance(answer, ApiRefusal):
            if answer.code in (401, 404):
                raise PollingRefused("Telegram does not know this token; see telegram_token")
            if answer.code == 409 and answer.says("webhook"):
                raise PollingRefused(
                    "a webhook is set for this bot, so it cannot poll; "
                    "remove it: jobwire bot poll --delete-webhook"
                )
            log.warning(
                "getUpdates refused error=%(error)s; will retry", {"error": answer.description}
            )
            return answer.retry_after_s or 1.0
        log.warning("getUpdates failed error=%(error)s; will retry", {"error": answer.reason})
        return 1.0

    async def _take_all(self, lanes: ChatLanes, updates: Sequence[object]) -> None:
        """Record the photos of a batch, and leave the rest of the work to the lanes.

        The offset goes on past a photo only when it is recorded; what comes again is known.
        """
        numbered = [(integer(mapping(each).get("update_id")), each) for each in updates]
        by_chat: dict[object, list[tuple[int, object]]] = defaultdict(list)
        for update_id, update in numbered:
            if update_id is not None:
                by_chat[_chat_of(update)].append((update_id, update))
        failed: list[int] = []
        slots = asyncio.Semaphore(_AT_ONCE)

        async def take(chat: list[tuple[int, object]]) -> None:
            async with slots:
                for update_id, update in chat:
                    try:
                        await self._begin(lanes, update)
                    except ObjectsError as error:
                        log.warning(
                            "update not processed error=%(error)s; will retry at the next poll",
                            {"error": error},
                        )
                        failed.append(update_id)
                        return
                    except Exception:
                        log.exception(
                            "update skipped update_id=%(update_id)s", {"update_id": update_id}
                        )

        async with asyncio.TaskGroup() as group:
            for chat in by_chat.values():
                group.create_task(take(chat))
        known = [update_id for update_id, _ in numbered if update_id is not None]
        if failed:
            self._offset = min(failed)
            raise Unavailable(f"the photos of {len(failed)} chats are not recorded")
        if known:
            self._offset = max(known) + 1

    async def _begin(self, lanes: ChatLanes, update: object) -> None:
        """Record the photo of an update, if it has one; ObjectsError if that fails."""
        flow, chat = self._bot.flow, _chat_of(update)
        photo = await self._bot.photo_in(update)
        if photo is None:
            lanes.add(chat, lambda _passed: self._bot.answer(update))
            return
        recorded = await flow.record(photo)
        if lanes.is_full:
            tid = recorded.current.intent.tid
            log.warning(
                "many photos at once task_id=%(task_id)s; reconcile continues with this one",
                {"task_id": tid},
            )
        else:
            lanes.add(chat, lambda passed: flow.drive_recorded(recorded, passed))

    async def hold_lease(self) -> bool:
        """Take the lease or renew it; False while another poller has it."""
        now_ms = self._deps.clock.now_ms()
        if self._until_ms - now_ms > self._lease_ms // 2:
            return True
        found, lease = await read_lease(self._deps.bucket)
        if lease.held_by_other(self._name, now_ms):
            self._until_ms = 0
            return False
        until_ms = now_ms + self._lease_ms
        taken = await self._write(found, until_ms)
        self._until_ms = until_ms if taken else 0
        return taken

    async def _write(self, found: Found | Missing, until_ms: int) -> bool:
        def compose(writer: str) -> bytes:
            return msgspec.json.encode(PollerLease(self._name, until_ms, writer))

        seen = found.version if isinstance(found, Found) else None
        return isinstance(await write_json(self._deps.bucket, POLLER_KEY, compose, seen), Version)

    async def _release(self) -> None:
        """End the lease, so that the next poller does not wait for it."""
        if not self._until_ms:
            return
        try:
            found, lease = await read_lease(self._deps.bucket)
            held_by_other = lease.held_by_other(self._name, self._deps.clock.now_ms())
            if isinstance(found, Found) and not held_by_other:
                await self._write(found, 0)
        except ObjectsError as error:
            log.warning("lease not released error=%(error)s; it expires", {"error": error})


def _chat_of(update: object) -> object:
    """What orders updates: the chat of the message."""
    return integer(mapping(mapping(mapping(update).get("message")).get("chat")).get("id"))


async def pause(
    stop: asyncio.Event, seconds: float, *, unless: asyncio.Event | None = None
) -> bool:
    """Wait, unless `stop` or the other event is set first; whether it was the other one."""
    events = [stop] if unless is None else [stop, unless]
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    return unless is not None and unless.is_set()
