"""A whole bot for tests: the flow over a real bucket, the stand-ins, and a webhook receiver.

The flow is built from plain values, so that another process (`process.py`) builds the same one.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import struct
import threading
import time
import zlib
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, Self, TypeVar

from jobwire.job.clock import Clock, SystemClock
from jobwire.objects import Bucket, BucketConfig, Found
from jobwire.systems.predictions import build
from jobwire.systems.predictions.chat import Chat
from jobwire.systems.predictions.contract import OPEN_PREFIX, task_key
from jobwire.systems.predictions.flow import Flow
from jobwire.systems.predictions.ids import TaskIds, uuid_of
from jobwire.systems.predictions.intent import Photo
from jobwire.systems.predictions.reconcile import PassReport, reconcile
from jobwire.systems.predictions.settings import PredictionsSettings
from jobwire.systems.predictions.telegram.api import BotApi
from jobwire.systems.predictions.telegram.bot import TelegramBot, handle_update
from jobwire.systems.predictions.telegram.chat import TelegramChat
from jobwire.systems.predictions.webhook import handle
from tests.standins import telegram
from tests.standins.chat import ChatStandin
from tests.standins.chat_client import HttpChat
from tests.standins.replicate import SECRET, TOKEN, ReplicateStandin, Webhook
from tests.standins.server import Call, Request, Standin
from tests.support.s3_proxy import Reply
from tests.support.wait import wait_until

T = TypeVar("T")
BOT: Final = "bot"
IDS: Final = TaskIds(SECRET)


# Repetitions of each case on moto; `make chaos` sets fifty.
ROUNDS: Final = int(os.environ.get("PREDICTIONS_ROUNDS") or 2)


def rounds(site: Site, moto: BucketConfig) -> int:
    """Once on SeaweedFS, whose contended writes wait for seconds; several times on moto."""
    return ROUNDS if site.bucket.config.endpoint == moto.endpoint else 1


def png(red: int, green: int, blue: int, width: int = 8, height: int = 8) -> bytes:
    """A small PNG of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    rows = b"".join(b"\0" + bytes((red, green, blue)) * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@dataclass
class ShiftedClock(SystemClock):
    """The machine's clock, moved ahead: hours pass at once."""

    shift_s: float = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + round(self.shift_s * 1000)


@dataclass(frozen=True, slots=True)
class Addresses:
    """Everything that another process needs to build the same flow."""

    bucket: dict[str, Any]
    replicate_url: str
    chat_url: str
    public_url: str
    cog_url: str = ""
    shift_s: float = 0.0
    in_flight: int = 0
    per_hour: int = 0
    max_image_mb: int = 10
    max_album: int = 0
    owner_chat: int = 0
    groups: Literal["addressed", "all", "never"] = "addressed"
    telegram_url: str = ""
    """With it, the chat is Telegram."""

    @property
    def chat(self) -> Chat:
        if self.telegram_url:
            return TelegramChat(BotApi(telegram.TOKEN, self.telegram_url))
        return HttpChat(self.chat_url)

    @property
    def bot(self) -> str:
        return telegram.TOKEN.partition(":")[0] if self.telegram_url else BOT


def build_flow(
    addresses: Addresses, clock: Clock | None = None, bucket: Bucket | None = None
) -> Flow:
    """The flow as a process of ours builds it."""
    settings = PredictionsSettings(
        provider="cog" if addresses.cog_url else "replicate",
        model="test/invert" if addresses.cog_url else "test/invert:abc123",
        replicate_token=TOKEN,
        cog_url=addresses.cog_url,
        replicate_url=addresses.replicate_url,
        webhook_secret=SECRET,
        public_url=addresses.public_url,
        tenant="acme",
        max_image_mb=addresses.max_image_mb,
        max_in_flight=addresses.in_flight,
        max_per_hour=addresses.per_hour,
        max_album=addresses.max_album,
        owner_chat=addresses.owner_chat,
        groups=addresses.groups,
        allow_loopback=True,
    )
    return build.build_flow(
        settings,
        bucket or Bucket(BucketConfig(**addresses.bucket)),
        addresses.chat,
        bot=addresses.bot,
        clock=clock or ShiftedClock(addresses.shift_s),
    )


class Receiver(Standin):
    """Receives webhooks over HTTP and passes them to the flow; `webhook` is the name of its
    call."""

    def __init__(self) -> None:
        super().__init__()
        self.flow: Flow | None = None
        self.bot: TelegramBot | None = None
        self.statuses: list[int] = []
        self._loop = asyncio.new_event_loop()
        self._runner = threading.Thread(target=self._loop.run_forever, daemon=True)

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run something in the receiver's own loop, as its process would."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(100)

    def call(self, request: Request) -> Call:
        return "webhook", lambda: self._take(request)

    def _take(self, request: Request) -> Reply:
        assert self.flow is not None
        if request.path == "/hooks/telegram":
            assert self.bot is not None
            work = handle_update(self.bot, telegram.SECRET, request.headers, request.body)
        else:
            _, _hooks, provider, tid = request.path.split("/")
            work = handle(self.flow, provider, tid, request.headers, request.query, request.body)
        answer = self.run(work)
        self.statuses.append(answer.status)
        return Reply(answer.status, (), answer.text.encode())

    def __enter__(self) -> Self:
        self._runner.start()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.run(_finish_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._runner.join(30)
        self._loop.close()


async def _finish_all() -> None:
    """Wait for webhooks in flight before the loop is closed."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=30)
    await asyncio.get_running_loop().shutdown_default_executor()


class Site:
    """One bot with its bucket, its provider and its chat."""

    def __init__(self, store: BucketConfig, model_url: str, /, **options: Any) -> None:
        self.clock = ShiftedClock()
        self.replicate = ReplicateStandin(model_url, self.clock.now_ms)
        self.chat = ChatStandin()
        self.receiver = Receiver()
        self.addresses = Addresses(
            bucket=asdict(store),
            replicate_url=self.replicate.url,
            chat_url=self.chat.url,
            public_url=options.pop("public_url", self.receiver.url),
            **options,
        )
        self.flow = build_flow(self.addresses, self.clock)
        self.receiver.flow = build_flow(self.addresses, self.clock)
        self._messages = itertools.count(1)
        self._started = int(time.time())

    @property
    def bucket(self) -> Bucket:
        return self.flow.deps.bucket

    def photo(self, *, chat_id: int | None = None, caption: str = "", **more: Any) -> Photo:
        """A new message with a photo; by default in a chat of its own."""
        number = next(self._messages)
        file_id = f"file-{number}"
        self.chat.files[file_id] = png(number % 256, 40, 90)
        given: dict[str, Any] = {
            "chat_id": chat_id or 7000 + number,
            "user_id": 500 + number,
            "message_id": number,
            "file_id": file_id,
            "date_s": self._started,
            "caption": caption,
            **more,
        }
        return Photo(**given)

    def tid(self, photo: Photo) -> str:
        return IDS.of_message(self.addresses.bot, photo.chat_id, photo.message_id or 0)

    def paid(self, photo: Photo) -> list[dict[str, object]]:
        """The predictions that were created, and paid, for this photo."""
        return self.replicate.created_for(uuid_of(self.tid(photo)))

    async def closed(self) -> None:
        """Wait until no task is open."""

        async def none_open() -> bool:
            return await self.open_tasks() == []

        await wait_until(none_open, "every task to be closed")

    async def state(self, photo: Photo) -> str | None:
        current = await self.flow.deps.records.load(self.tid(photo))
        return current.intent.state if current else None

    async def receiver_status(self, tid: str, webhook: Webhook) -> int:
        """Pass a webhook to the flow as a route does; the status of the answer."""
        answer = await handle(self.flow, "replicate", tid, webhook.headers, {}, webhook.body)
        return answer.status

    async def open_tasks(self) -> list[str]:
        listed = [entry.key async for entry in self.bucket.list(OPEN_PREFIX)]
        return [key.removeprefix(OPEN_PREFIX) for key in listed]

    async def recover(self, *, passes: int = 8, step_s: float = 130) -> list[PassReport]:
        """Let time pass and reconcile until no task is open."""
        reports: list[PassReport] = []
        for _ in range(passes):
            await asyncio.to_thread(self.replicate.wait_idle)
            self.clock.shift_s += step_s
            reports.append(await reconcile(self.flow))
            if not await self.open_tasks():
                break
        return reports

    async def verify_once(
        self, *photos: Photo, paid: int = 1, spare_texts: int = 0, detail: str = ""
    ) -> None:
        """One outcome, one picture, one prediction paid, nothing open; for each photo."""
        assert await self.open_tasks() == [], detail
        for photo in photos:
            assert await self.state(photo) == "delivered", detail
            assert len(self.paid(photo)) == paid, detail
            assert len(self.chat.pictures(photo.chat_id)) == 1, detail
            assert len(self.chat.texts(photo.chat_id)) <= spare_texts, detail
            tasks = [await self.task(str(each["id"])) for each in self.paid(photo)]
            statuses = [each["status"] for each in tasks if each is not None]
            assert statuses == ["succeeded"], detail

    async def task(self, prediction_id: str) -> dict[str, Any] | None:
        """A task object as it is in the bucket."""
        found = await self.bucket.get(task_key(prediction_id))
        return json.loads(found.body) if isinstance(found, Found) else None

    def __enter__(self) -> Self:
        self.replicate.__enter__()
        self.chat.__enter__()
        self.receiver.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.replicate.__exit__()
        self.receiver.__exit__()
        self.chat.__exit__()


def through(addresses: Addresses, endpoint: str) -> Addresses:
    """The same site with its bucket behind a proxy; signed URLs still point to the bucket
    itself."""
    bucket = addresses.bucket
    moved = {**bucket, "endpoint": endpoint, "public_endpoint": bucket["endpoint"]}
    return replace(addresses, bucket=moved)
