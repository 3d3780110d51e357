"""The photo bot from its settings: its parts, and its feature in a gateway."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

from jobwire.gateway.feature import Feature
from jobwire.log import component
from jobwire.systems.predictions.bot import build_bot, is_configured
from jobwire.systems.predictions.flow import Flow
from jobwire.systems.predictions.http import feature
from jobwire.systems.predictions.service import (
    WebhookRefused,
    poll_forever,
    reconcile_forever,
    set_webhook,
)
from jobwire.systems.predictions.settings import PredictionsSettings
from jobwire.systems.predictions.telegram.bot import TelegramBot
from jobwire.systems.system import GatewayContext

_log = component("predictions")


@contextlib.asynccontextmanager
async def predictions_feature(context: GatewayContext) -> AsyncGenerator[Feature]:
    """The feature; while it is open, unfinished tasks are reconciled, and updates are polled for
    where there is no public address."""
    settings, bucket = context.settings.predictions, context.backends.bucket
    if not is_configured(settings):
        _log.debug("bot not configured; tasks in the bucket are shown")
        yield feature(bucket, settings.tenant)
        return
    bot = build_bot(settings, bucket)
    if settings.public_url:
        try:
            await set_webhook(bot, settings.public_url, settings.telegram_secret)
        except WebhookRefused as error:
            _log.warning(
                "webhook not set error=%(error)s; the one that is set there stays", {"error": error}
            )
    async with running(bot.flow, bot, settings):
        yield feature(bucket, settings.tenant, bot.flow, bot, settings.telegram_secret)


@contextlib.asynccontextmanager
async def running(
    flow: Flow, bot: TelegramBot | None, settings: PredictionsSettings
) -> AsyncGenerator[None]:
    """What the bot does besides requests, while this is open."""
    stop = asyncio.Event()
    every_s = settings.reconcile_every.total_seconds()
    work: Sequence[asyncio.Task[None]] = ()
    async with asyncio.TaskGroup() as group:
        work = [group.create_task(reconcile_forever(flow, stop, every_s=every_s))]
        if bot is not None and not settings.public_url:
            work.append(group.create_task(poll_forever(bot, stop)))
        try:
            yield
        finally:
            stop.set()
            # A pass or a poll in flight is cancelled: each of its steps may be repeated.
            for task in work:
                task.cancel()
