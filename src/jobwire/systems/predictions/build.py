"""The flow from its settings, a bucket and a chat: for an HTTP process and for a function."""

from __future__ import annotations

from typing import Final

from jobwire.job.clock import Clock
from jobwire.objects import Bucket
from jobwire.systems.predictions.byte_budget import MIB, ByteBudget
from jobwire.systems.predictions.chat import Chat
from jobwire.systems.predictions.contract import MAX_OUTPUT_BYTES
from jobwire.systems.predictions.fetch import Fetcher
from jobwire.systems.predictions.flow import Flow
from jobwire.systems.predictions.flow_deps import FlowDeps
from jobwire.systems.predictions.ids import TaskIds
from jobwire.systems.predictions.intent import FlowTimes
from jobwire.systems.predictions.limits import Limits
from jobwire.systems.predictions.providers import Provider
from jobwire.systems.predictions.providers.cog import Cog
from jobwire.systems.predictions.providers.replicate import Replicate
from jobwire.systems.predictions.records import Records
from jobwire.systems.predictions.settings import PredictionsSettings
from jobwire.systems.predictions.store_clock import StoreClock

# A task that is not released counts against its chat's limit no longer than this.
_COUNTED_S: Final = 7200
_POLL_AFTER_S: Final = 30
_POLL_SOON_S: Final = 3


def build_flow(
    settings: PredictionsSettings,
    bucket: Bucket,
    chat: Chat,
    *,
    bot: str,
    clock: Clock | None = None,
) -> Flow:
    """Build the flow of one bot; ValueError names the setting that is missing.

    `bot` distinguishes bots that share a bucket. `clock` is the store's unless another is given.
    """
    clock = clock or StoreClock(bucket)
    ids = TaskIds(settings.webhook_secret)
    has_webhooks = bool(settings.public_url or settings.callback_url)
    return Flow(
        FlowDeps(
            bucket=bucket,
            records=Records(bucket, clock),
            limits=Limits(
                bucket,
                clock,
                in_flight=settings.max_in_flight,
                per_hour=settings.max_per_hour,
                life_s=_COUNTED_S,
                album=settings.max_album,
            ),
            provider=_provider(settings, ids),
            chat=chat,
            fetcher=Fetcher(max_bytes=MAX_OUTPUT_BYTES, allow_loopback=settings.allow_loopback),
            ids=ids,
            clock=clock,
            policy=FlowTimes(
                deadline_s=settings.deadline_s,
                # Without webhooks a poll is the only way to learn of the outcome.
                poll_after_s=_POLL_AFTER_S if has_webhooks else _POLL_SOON_S,
            ),
            bot=bot,
            tenant=settings.tenant,
            public_url=settings.public_url,
            callback_url=settings.callback_url,
            groups=settings.groups,
            owner_chat=settings.owner_chat,
            budget=ByteBudget(settings.memory_mb * MIB),
            max_image_mb=settings.max_image_mb,
        )
    )


def _provider(settings: PredictionsSettings, ids: TaskIds) -> Provider:
    if settings.provider == "cog":
        return Cog(
            url=settings.cog_url,
            model=settings.model or "cog",
            ids=ids,
            input_field=settings.input_field,
        )
    for name in ("model", "replicate_token"):
        if not getattr(settings, name):
            raise ValueError(f"predictions.{name} is empty; Replicate needs it")
    return Replicate(
        model=settings.model,
        token=settings.replicate_token,
        webhook_secret=settings.webhook_secret,
        api_url=settings.replicate_url,
        input_field=settings.input_field,
    )
