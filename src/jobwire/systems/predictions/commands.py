"""What the commands of `jobwire bot` do, over the bucket of the settings."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict

from jobwire.doctor import Finding
from jobwire.job.clock import SystemClock
from jobwire.objects import Bucket, BucketConfig
from jobwire.settings import Loaded, SettingsError
from jobwire.systems.backends import known_buckets
from jobwire.systems.predictions import doctor, listing
from jobwire.systems.predictions.bot import build_bot
from jobwire.systems.predictions.listing import TaskPage, TaskView
from jobwire.systems.predictions.reconcile import reconcile
from jobwire.systems.predictions.records import Records
from jobwire.systems.predictions.service import reconcile_forever
from jobwire.systems.predictions.system import SYSTEM
from jobwire.systems.predictions.telegram.api import ApiResult
from jobwire.systems.predictions.telegram.poller import PollingRefused, UpdatePoller

__all__ = ["PollingRefused", "TaskPage", "TaskView", "examine", "poll", "run_pass", "show", "tasks"]


def bucket_config(loaded: Loaded) -> BucketConfig:
    """The bucket of the bot: of the settings, else of the running `jobwire up`."""
    known = known_buckets(loaded, [SYSTEM])
    if not known:
        raise SettingsError(["objects.endpoint: is required by the bot, or start: jobwire up"])
    return known[0].config


async def poll(loaded: Loaded, *, delete_webhook: bool, on_ready: Callable[[], None]) -> None:
    """Poll for updates and reconcile, until SIGINT or SIGTERM; PollingRefused if Telegram does."""
    settings = loaded.settings.predictions
    bot = build_bot(settings, Bucket(bucket_config(loaded)))
    if delete_webhook:
        answer = await bot.api.call("deleteWebhook")
        if not isinstance(answer, ApiResult):
            raise PollingRefused(
                "Telegram did not remove the webhook; see predictions.telegram_token"
            )
    stop, this = asyncio.Event(), asyncio.current_task()
    assert this is not None

    def end() -> None:
        """The first signal lets a photo that is being taken finish, the second does not."""
        if stop.is_set():
            this.cancel()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    every_s = settings.reconcile_every.total_seconds()
    passes = asyncio.create_task(reconcile_forever(bot.flow, stop, every_s=every_s))
    on_ready()
    try:
        await UpdatePoller(bot).run(stop)
        await passes
    finally:
        stop.set()
        passes.cancel()


async def run_pass(loaded: Loaded) -> dict[str, object]:
    """One pass over the unfinished tasks."""
    bot = build_bot(loaded.settings.predictions, Bucket(bucket_config(loaded)))
    return asdict(await reconcile(bot.flow))


async def tasks(loaded: Loaded, *, limit: int, after: str) -> TaskPage:
    """A page of the tasks."""
    bucket = Bucket(bucket_config(loaded))
    return await listing.list_tasks(bucket, _records(bucket), limit=limit, after=after)


async def show(loaded: Loaded, wanted: str) -> TaskView | None:
    """One task."""
    return await listing.find_task(_records(Bucket(bucket_config(loaded))), wanted)


async def examine(loaded: Loaded) -> AsyncIterator[Finding]:
    """The checks of the bot and of its bucket."""
    from jobwire.doctor import bucket

    async for finding in doctor.examine(loaded):
        yield finding
    for known in known_buckets(loaded, [SYSTEM]):
        async for finding in bucket.examine(known.config, known.rules, fix=known.fix):
            yield finding


def _records(bucket: Bucket) -> Records:
    return Records(bucket, SystemClock())
