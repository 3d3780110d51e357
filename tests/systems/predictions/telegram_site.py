"""A site whose chat is Telegram's Bot API, over the same bucket, provider and webhook receiver."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from jobwire.objects import BucketConfig
from jobwire.systems.predictions.telegram.api import BotApi
from jobwire.systems.predictions.telegram.bot import TelegramBot
from tests.standins.telegram import SECRET, TOKEN, TelegramStandin
from tests.systems.predictions.site import Site


class TelegramSite(Site):
    """`deliver` sends updates as Telegram sends them to a webhook."""

    def __init__(self, store: BucketConfig, model_url: str, /, **options: Any) -> None:
        self.telegram = TelegramStandin()
        super().__init__(store, model_url, telegram_url=self.telegram.url, **options)
        self.telegram.webhook_url = f"{self.receiver.url}/hooks/telegram"
        self.telegram.webhook_secret = SECRET
        self.bot = TelegramBot(self.flow, BotApi(TOKEN, self.telegram.url))
        assert self.receiver.flow is not None
        self.receiver.bot = TelegramBot(self.receiver.flow, BotApi(TOKEN, self.telegram.url))

    async def deliver(self, update: object, **options: Any) -> list[int]:
        return await asyncio.to_thread(self.telegram.deliver, update, **options)

    def __enter__(self) -> Self:
        self.telegram.__enter__()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.telegram.__exit__()
