"""Live status of many images for many readers, over one connection (I-4, I-12, I-34).

An image's status is a tracked key (`valkey.tracking`). Every reader gets the present state first,
then each change that is seen, in order; a slow reader skips to the newest one. If a status is
missing (it has expired, or the server lost it), the record decides. The end is sent when the record
has it: who has seen it reads the result (I-39).
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, cast

import msgspec

from jobwire.systems.images.contract import TERMINAL_STAGES, ImageKeys, Stage, StatusField
from jobwire.systems.images.status import read_status
from jobwire.valkey import Arg, Config, Reply, ValkeyError
from jobwire.valkey.tracking import TrackedKey, TrackingReader

_PROGRESS: Final = re.compile(r"-?[0-9]{1,3}")
_NOT_IN_AN_ID: Final = re.compile(r"[^\x21-\x7e]")
_LONGEST_PART: Final = 60
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 5.0
"""How long the record is waited for before it is read again."""
_log: Final = logging.getLogger("jobwire.images")


class ImageEvent(StrEnum):
    """The words of the event stream: the API's to the app (I-4)."""

    PROCESSING = "processing"
    READY = "ready"
    FAILED = "failed"


class ImageState(msgspec.Struct, frozen=True):
    """One state of an image."""

    stage: str
    progress: int
    updated_at: str
    error: str | None = None
    hidden_areas: int | None = None
    """Of an image that is ready, by its record, like `hidden_part`."""
    hidden_part: float | None = None

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

    @property
    def event_id(self) -> str:
        """`<updated_at>/<stage>` (I-40). Another program may have written anything; a client must
        be able to send it back in a header."""
        parts = (self.updated_at[:_LONGEST_PART], self.stage[:_LONGEST_PART])
        return "/".join(_NOT_IN_AN_ID.sub("", part) for part in parts)

    def is_end_seen(self, event_id: str) -> bool:
        """Whether a client whose last event has this id has seen the end."""
        return self.is_terminal and event_id.rpartition("/")[2] == self.stage


def image_state(fields: dict[StatusField, str]) -> ImageState:
    """The state that a status hash describes. Another program may have written any progress."""
    progress = fields[StatusField.PROGRESS]
    return ImageState(
        fields[StatusField.STAGE],
        int(progress) if _PROGRESS.fullmatch(progress) else 0,
        fields.get(StatusField.UPDATED_AT, ""),
        fields.get(StatusField.ERROR),
    )


class StatusReader(Protocol):
    """One open event stream."""

    @property
    def closed(self) -> bool: ...
    def push(self, event: ImageState) -> bool: ...
    def end(self) -> None: ...
    async def wait_writable(self) -> None: ...


Fallback = Callable[[str], Awaitable[ImageState | None]]
"""The state of an image without a status, by its record; None if there is no such image."""


@dataclass(eq=False, slots=True)
class _Subscription:
    reader: StatusReader
    sent: ImageState | None = None
    waiting: asyncio.Task[None] | None = None


class _FollowedImage(TrackedKey):
    __slots__ = ("confirming", "image_id", "is_missing", "lookup", "state", "subscriptions")

    def __init__(self, image_id: str, key: str) -> None:
        super().__init__(key)
        self.image_id = image_id
        self.state: ImageState | None = None
        self.is_missing = False
        """There is no status; the record decides."""
        self.lookup: asyncio.Task[None] | None = None
        """Reads the record."""
        self.confirming: asyncio.Task[None] | None = None
        """Waits until the record has the end that the status has."""
        self.subscriptions: set[_Subscription] = set()


class StatusFollower:
    """`async with follower.running(config):` around everything that subscribes."""

    def __init__(self, keys: ImageKeys, fallback: Fallback) -> None:
        self._keys = keys
        self._fallback = fallback
        self._images = TrackingReader[_FollowedImage](
            _read_command, self._on_status, on_tick=self._recheck
        )

    @property
    def watchers(self) -> int:
        """How many readers follow an image."""
        return sum(len(image.subscriptions) for image in self._images.keys)

    @property
    def table_use(self) -> float:
        """How much of the server's table of tracked keys is in use (G-16)."""
        return self._images.table_use

    @contextlib.asynccontextmanager
    async def running(
        self, config: Config | str, name: str = "jobwire", *, connect_timeout_s: float = 0.0
    ) -> AsyncGenerator[None]:
        """Follow inside the block."""
        reading = self._images.running(
            config, f"{name}-images", connect_timeout_s=connect_timeout_s
        )
        async with reading, asyncio.TaskGroup() as self._group:
            try:
                yield
            finally:
                for image in tuple(self._images.keys):
                    for subscription in tuple(image.subscriptions):
                        self._unsubscribe(image, subscription)

    def watch(self, image_id: str, reader: StatusReader) -> Callable[[], None]:
        """Send the present state and every change to `reader`; call the result to unsubscribe."""
        key = self._keys.status(image_id)
        image = self._images.get(key)
        if image is None:
            image = _FollowedImage(image_id, key)
            self._images.add(image)
        subscription = _Subscription(reader)
        image.subscriptions.add(subscription)
        # A known status is current: its changes are announced.
        if image.state is None or image.is_missing:
            self._images.mark(image)
        self._deliver(image, subscription)
        return lambda: self._unsubscribe(image, subscription)

    async def present(self, image_id: str) -> ImageState | None:
        """The present state, not followed; None if there is no such image or no answer."""
        try:
            fields = read_status(await self._images.connection.hgetall(self._keys.status(image_id)))
        except ValkeyError:
            return None
        return image_state(fields) if fields else await self._fallback(image_id)

    def _unsubscribe(self, image: _FollowedImage, subscription: _Subscription) -> None:
        image.subscriptions.discard(subscription)
        if subscription.waiting is not None:
            subscription.waiting.cancel()
        if not image.subscriptions and self._images.get(image.key) is image:
            self._images.remove(image)
            for task in (image.lookup, image.confirming):
                if task is not None:
                    task.cancel()

    # Reading

    def _on_status(self, image: _FollowedImage, reply: Reply) -> None:
        # A key of another type is not a status.
        fields = read_status(cast("dict[str, str]", reply or {}))
        image.is_missing = fields is None
        state = image_state(fields) if fields is not None else None
        if image.confirming is not None:
            image.confirming.cancel()
            image.confirming = None
        if state is not None and state.is_terminal:
            image.confirming = self._group.create_task(self._confirm(image, state))
        elif state is not None:
            self._set_state(image, state)
        elif image.lookup is None:
            image.lookup = self._group.create_task(self._look_up(image))

    async def _look_up(self, image: _FollowedImage) -> None:
        try:
            state = await self._fallback(image.image_id)
        except Exception as error:  # noqa: BLE001 - the record is looked up again later
            _log.warning(
                "status not found image_id=%(image_id)s error=%(error)s",
                {"image_id": image.image_id, "error": error},
            )
            return
        finally:
            image.lookup = None
        if image.is_missing:  # still: a status that was written meanwhile is newer
            self._set_state(image, state)

    async def _confirm(self, image: _FollowedImage, state: ImageState) -> None:
        """Send the end once the record has it. The result may be applied by another process."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                record = await self._fallback(image.image_id)
            except Exception as error:  # noqa: BLE001 - the record is read again later
                _log.warning(
                    "record not read image_id=%(image_id)s error=%(error)s; will retry",
                    {"image_id": image.image_id, "error": error},
                )
            else:
                if record is None or record.is_terminal:
                    image.confirming = None
                    self._set_state(image, _with_areas(state, record))
                    return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _set_state(self, image: _FollowedImage, state: ImageState | None) -> None:
        if state is None:  # the image is gone
            for subscription in tuple(image.subscriptions):
                subscription.reader.end()
                self._unsubscribe(image, subscription)
            return
        image.state = state
        for subscription in tuple(image.subscriptions):
            self._deliver(image, subscription)

    def _recheck(self) -> None:
        """Look up missing states again: a record changes unannounced."""
        for image in self._images.keys:
            if image.is_missing:
                self._images.mark(image)

    # Delivering

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


def _with_areas(state: ImageState, record: ImageState | None) -> ImageState | None:
    """The end that the status has, with what only the record knows; None without a record."""
    return record and msgspec.structs.replace(
        state, hidden_areas=record.hidden_areas, hidden_part=record.hidden_part
    )


def _read_command(image: _FollowedImage) -> Sequence[Arg]:
    return "HGETALL", image.key
