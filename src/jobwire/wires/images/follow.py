"""Live status of many images for many readers, over one connection (I-4, I-12, I-34).

With CLIENT TRACKING the server announces when a status that was read changes; reading and arming
the announcement is one command, so no change is missed. Every reader gets the present state first,
then each change that is seen, in order; a slow reader skips to the newest one. If a status is
missing (it has expired, or the server lost it), the record decides.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol, cast

from jobwire.valkey import Config, Connection, Reply, ValkeyError
from jobwire.wires.images.contract import TERMINAL_STAGES, ImageKeys, Stage, StatusField
from jobwire.wires.images.status import read_status

_log: Final = logging.getLogger("jobwire.images")
_RETRY_S: Final = 0.25
_RECHECK_S: Final = 5.0
"""How often missing states are looked up, and a dead connection is noticed."""


class ImageEvent(StrEnum):
    """The words of the event stream: the API's to the app (I-4)."""

    PROCESSING = "processing"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StatusChange:
    """One state of an image, as readers get it."""

    stage: str
    progress: int
    updated_at: str
    error: str | None = None

    @property
    def event(self) -> ImageEvent:
        """The name of the event."""
        match self.stage:
            case Stage.DONE:
                return ImageEvent.READY
            case Stage.FAILED:
                return ImageEvent.FAILED
            case _:
                return ImageEvent.PROCESSING

    @property
    def is_terminal(self) -> bool:
        return self.stage in TERMINAL_STAGES


def as_change(fields: dict[StatusField, str]) -> StatusChange:
    """The state that a status hash describes."""
    progress = fields[StatusField.PROGRESS]
    return StatusChange(
        fields[StatusField.STAGE],
        int(progress) if progress.lstrip("-").isdigit() and len(progress) < 5 else 0,
        fields.get(StatusField.UPDATED_AT, ""),
        fields.get(StatusField.ERROR),
    )


class StatusReader(Protocol):
    """One open event stream."""

    @property
    def closed(self) -> bool: ...
    def push(self, event: StatusChange) -> bool: ...
    def end(self) -> None: ...
    async def wait_writable(self) -> None: ...


Fallback = Callable[[str], Awaitable[StatusChange | None]]
"""The state of an image without a status, by its record; None if there is no such image."""


@dataclass(eq=False, slots=True)
class _Subscription:
    reader: StatusReader
    sent: StatusChange | None = None
    waiting: asyncio.Task[None] | None = None


@dataclass(eq=False, slots=True)
class _FollowedImage:
    image_id: str
    key: str
    state: StatusChange | None = None
    missing: bool = False
    reading: bool = False
    changed: bool = False
    subscriptions: set[_Subscription] = field(default_factory=set["_Subscription"])


class StatusFollower:
    """`async with follower.running(config):` around everything that subscribes."""

    def __init__(self, keys: ImageKeys, fallback: Fallback) -> None:
        self._keys = keys
        self._fallback = fallback
        self._images: dict[str, _FollowedImage] = {}

    @property
    def watchers(self) -> int:
        """How many readers follow an image."""
        return sum(len(image.subscriptions) for image in self._images.values())

    @contextlib.asynccontextmanager
    async def running(
        self, config: Config | str, name: str = "jobwire", *, connect_timeout_s: float = 0.0
    ) -> AsyncGenerator[None]:
        """Follow inside the block."""
        opening = Connection.open(
            config,
            name=f"{name}-images",
            setup=[("CLIENT", "TRACKING", "ON")],
            on_push=self._pushed,
            on_up=self._read_all,
            connect_timeout_s=connect_timeout_s,
        )
        async with opening as self._connection, asyncio.TaskGroup() as self._group:
            rechecks = self._group.create_task(self._recheck(), name="images: recheck")
            try:
                yield
            finally:
                rechecks.cancel()
                for image in tuple(self._images.values()):
                    for subscription in tuple(image.subscriptions):
                        self._unsubscribe(image, subscription)

    def watch(self, image_id: str, reader: StatusReader) -> Callable[[], None]:
        """Send the present state and every change to `reader`; call the result to unsubscribe."""
        key = self._keys.status(image_id)
        image = self._images.get(key)
        if image is None:
            image = self._images[key] = _FollowedImage(image_id, key)
        subscription = _Subscription(reader)
        image.subscriptions.add(subscription)
        if image.state is not None:
            self._deliver(image, subscription)
        self._read(image)
        return lambda: self._unsubscribe(image, subscription)

    async def present(self, image_id: str) -> StatusChange | None:
        """The present state, not followed; None if there is no such image or no answer."""
        try:
            fields = read_status(await self._connection.hgetall(self._keys.status(image_id)))
        except ValkeyError:
            return None
        return as_change(fields) if fields else await self._fallback(image_id)

    def _unsubscribe(self, image: _FollowedImage, subscription: _Subscription) -> None:
        image.subscriptions.discard(subscription)
        if subscription.waiting is not None:
            subscription.waiting.cancel()
        if not image.subscriptions and self._images.get(image.key) is image:
            del self._images[image.key]

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def _pushed(self, push: list[Reply]) -> None:
        match push:
            case ["invalidate", [*keys]]:
                for key in keys:
                    image = self._images.get(cast(str, key))
                    if image is not None:
                        self._read(image)
            case ["invalidate", None]:
                self._read_all()
            case _:
                pass

    def _read_all(self) -> None:
        """A new connection has no tracking armed, and an emptied server no keys."""
        for image in self._images.values():
            self._read(image)

    def _read(self, image: _FollowedImage) -> None:
        image.changed = True
        if not image.reading:
            image.reading = True
            self._group.create_task(self._read_until_current(image))

    async def _read_until_current(self, image: _FollowedImage) -> None:
        try:
            while image.changed and image.subscriptions:
                image.changed = False
                try:
                    fields = read_status(await self._connection.hgetall(image.key))
                    image.missing = fields is None
                    state = as_change(fields) if fields else await self._fallback(image.image_id)
                except ValkeyError:
                    image.changed = True
                    await asyncio.sleep(_RETRY_S)
                    continue
                except Exception as error:  # noqa: BLE001 - the record is looked up again later
                    _log.warning("status not found: image=%s: %s", image.image_id, error)
                    return
                self._set_state(image, state)
        finally:
            image.reading = False

    def _set_state(self, image: _FollowedImage, state: StatusChange | None) -> None:
        if state is None:  # the image is gone
            for subscription in tuple(image.subscriptions):
                subscription.reader.end()
                self._unsubscribe(image, subscription)
            return
        image.state = state
        for subscription in tuple(image.subscriptions):
            self._deliver(image, subscription)

    async def _recheck(self) -> None:
        while True:
            await asyncio.sleep(_RECHECK_S)
            for image in self._images.values():
                if image.missing:
                    self._read(image)
            with contextlib.suppress(ValkeyError):
                await self._connection.ping()

    # ── delivering ───────────────────────────────────────────────────────────────────────────────

    def _deliver(self, image: _FollowedImage, subscription: _Subscription) -> None:
        state, reader = image.state, subscription.reader
        if state is None or state == subscription.sent or subscription.waiting is not None:
            return
        if reader.closed:
            self._unsubscribe(image, subscription)
        elif not reader.push(state):
            waiting = self._when_writable(image, subscription)
            subscription.waiting = self._group.create_task(waiting)
        else:
            subscription.sent = state
            if state.is_terminal:
                reader.end()
                self._unsubscribe(image, subscription)

    async def _when_writable(self, image: _FollowedImage, subscription: _Subscription) -> None:
        await subscription.reader.wait_writable()
        subscription.waiting = None
        self._deliver(image, subscription)
