"""What a process of the bot does besides answering requests: reconcile, and poll for updates.

Run by the gateway under `jobwire up`, by `bot serve` and by `bot poll`; any number of processes may
do so at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from jobwire.objects import ObjectsError
from jobwire.systems.predictions.flow import Flow
from jobwire.systems.predictions.reconcile import reconcile
from jobwire.systems.predictions.telegram.api import ApiRefusal, ApiResult
from jobwire.systems.predictions.telegram.bot import TelegramBot
from jobwire.systems.predictions.telegram.poller import PollingRefused, UpdatePoller, pause

log: Final = logging.getLogger("jobwire.predictions")

_BUSY_S: Final = 3.0
_WEBHOOK_PATH: Final = "/hooks/telegram"


class WebhookRefused(Exception):
    """Telegram does not take the webhook; the message has its reason."""


async def reconcile_forever(flow: Flow, stop: asyncio.Event, *, every_s: float) -> None:
    """A pass over unfinished tasks, again and again."""
    # Without webhooks a pass is the only way to learn of outcomes, and cog has no queue.
    eager = not (flow.deps.public_url or flow.deps.callback_url)
    eager = eager or flow.deps.provider.name == "cog"
    while not stop.is_set():
        pause_s = every_s
        flow.recorded.clear()
        try:
            report = await reconcile(flow, limit_s=every_s)
            if report.open > report.delivered and eager:
                pause_s = min(every_s, _BUSY_S)
        except ObjectsError as error:
            log.warning("reconcile pass aborted error=%(error)s", {"error": error})
        except Exception:
            log.exception("reconcile pass aborted")
        woken = await pause(stop, pause_s, unless=flow.recorded if eager else None)
        if woken:  # a moment for the provider
            await pause(stop, min(every_s, _BUSY_S))


async def poll_forever(bot: TelegramBot, stop: asyncio.Event) -> None:
    """Poll for updates; a refusal of Telegram ends it with an error in the log."""
    try:
        await UpdatePoller(bot).run(stop)
    except PollingRefused as error:
        log.error("not polling for updates error=%(error)s", {"error": error})


async def set_webhook(bot: TelegramBot, public_url: str, secret: str) -> None:
    """Tell Telegram where to send updates; raises WebhookRefused."""
    answer = await bot.api.call(
        "setWebhook",
        {
            "url": public_url.rstrip("/") + _WEBHOOK_PATH,
            "secret_token": secret,
            "allowed_updates": ["message"],
        },
    )
    if isinstance(answer, ApiResult):
        return
    reason = answer.description if isinstance(answer, ApiRefusal) else answer.reason
    raise WebhookRefused(f"Telegram refused the webhook: {reason}")
