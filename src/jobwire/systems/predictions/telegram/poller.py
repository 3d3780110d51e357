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
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from jobwire.objects import Bucket, Found, Missing, ObjectsError, Unavailable, Version
from jobwire.systems.predictions.contract import POLLER_KEY
from jobwire.systems.predictions.http_client import NoAnswer
from jobwire.systems.predictions.json_values import integer, items, mapping
from jobwire.systems.predictions.records import write_json
from jobwire.systems.predictions.telegram.api import ApiRefusal, ApiResult
from jobwire.systems.predictions.telegram.bot import TelegramBot

log: Final = logging.getLogger("jobwire.predictions")

_WAIT_S: Final = 25  # how long Telegram holds a request without updates
_LEASE_S: Final = 90
_ASK_AGAIN_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 60.0
_AT_ONCE: Final = 100
_ALLOWED: Final = ("message",)
_MAX_LEASE_BYTES: Final = 4096


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


async def read_lease(bucket: Bucket) -> tuple[Found | Missing, PollerLease]:
    """The lease in the bucket; one that cannot be read counts as expired."""
    found = await bucket.get(POLLER_KEY, max_bytes=_MAX_LEASE_BYTES)
    if isinstance(found, Found):
        with suppress(msgspec.MsgspecError, RecursionError):
            return found, msgspec.json.decode(found.body, type=PollerLease)
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
        """Poll until `stop`; raises PollingRefused where waiting cannot help."""
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
                    wait_s = await self._poll_until(stop)
                    if wait_s is None:
                        pause_s = 1.0
                        continue
                except ObjectsError as error:
                    log.warning("updates not read: %s; will retry", error)
                    wait_s = pause_s
                await pause(stop, max(wait_s, pause_s))
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        finally:
            await self._release()

    async def _poll_until(self, stop: asyncio.Event) -> float | None:
        """Ask once; `stop` breaks off the waiting, never the taking of updates."""
        request, stopping = asyncio.create_task(self._ask()), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((request, stopping), return_when=asyncio.FIRST_COMPLETED)
            return await self._take_answer(await request) if request.done() else None
        finally:
            request.cancel()
            stopping.cancel()

    async def poll_once(self) -> float | None:
        """Take what Telegram has; None if all went well, else how long to wait."""
        return await self._take_answer(await self._ask())

    async def _ask(self) -> ApiResult | ApiRefusal | NoAnswer:
        params: dict[str, object] = {"timeout": self._wait_s, "allowed_updates": list(_ALLOWED)}
        if self._offset is not None:
            params["offset"] = self._offset
        return await self._bot.api.call("getUpdates", params, timeout_s=self._wait_s + 15.0)

    async def _take_answer(self, answer: ApiResult | ApiRefusal | NoAnswer) -> float | None:
        if isinstance(answer, ApiResult):
            await self._take_all(items(answer.value))
            return None
        if isinstance(answer, ApiRefusal):
            if answer.code in (401, 404):
                raise PollingRefused("Telegram does not know this token; see telegram_token")
            if answer.code == 409 and answer.says("webhook"):
                raise PollingRefused(
                    "a webhook is set for this bot, so it cannot poll; "
                    "remove it: jobwire bot poll --delete-webhook"
                )
            log.warning("getUpdates refused: %s", answer.description)
            return answer.retry_after_s or 1.0
        log.warning("getUpdates: %s", answer.reason)
        return 1.0

    async def _take_all(self, updates: Sequence[object]) -> None:
        """Take a batch: chats at the same time, each chat's updates in order.

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
                        await self._bot.take(update)
                    except ObjectsError as error:
                        log.warning("update not processed: %s; will retry at the next poll", error)
                        failed.append(update_id)
                        return
                    except Exception:
                        log.exception("update skipped  update=%s", update_id)

        async with asyncio.TaskGroup() as group:
            for chat in by_chat.values():
                group.create_task(take(chat))
        known = [update_id for update_id, _ in numbered if update_id is not None]
        if failed:
            self._offset = min(failed)
            raise Unavailable(f"the photos of {len(failed)} chats are not recorded")
        if known:
            self._offset = max(known) + 1

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
            log.warning("lease not released: %s; it expires", error)


def _chat_of(update: object) -> object:
    """What orders updates: the chat of the message."""
    return integer(mapping(mapping(mapping(update).get("message")).get("chat")).get("id"))


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait, unless `stop` is set first."""
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
