"""What every step of the flow works with, and the few operations that several steps share."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from jobwire.job.clock import Clock
from jobwire.objects import Bucket
from jobwire.wires.predictions.chat import Chat
from jobwire.wires.predictions.contract import FAILED, ErrorCode, output_key, webhook_url
from jobwire.wires.predictions.counts import Counts
from jobwire.wires.predictions.fetch import Fetched, Fetcher, decode_data_url
from jobwire.wires.predictions.ids import TaskIds
from jobwire.wires.predictions.intent import (
    Intent,
    Lease,
    News,
    Outcome,
    Output,
    Policy,
)
from jobwire.wires.predictions.limits import Limits
from jobwire.wires.predictions.providers import PredictionRequest, Provider
from jobwire.wires.predictions.records import Records

log: Final = logging.getLogger("jobwire.predictions")

_INPUT_MARGIN_S: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of the flow. `bot` names the bot in task ids."""

    bucket: Bucket
    records: Records
    limits: Limits
    provider: Provider
    chat: Chat
    fetcher: Fetcher
    ids: TaskIds
    clock: Clock
    policy: Policy = field(default_factory=Policy)
    bot: str = ""
    tenant: str = ""
    public_url: str = ""
    callback_url: str = ""
    counts: Counts = field(default_factory=Counts)
    max_image_mb: int = 10

    @property
    def max_image_bytes(self) -> int:
        return self.max_image_mb * 1024 * 1024

    def lease(self, owner: str) -> Lease:
        """A fresh lease for a driver."""
        return Lease(owner, self.clock.now_ms() + self.policy.lease_s * 1000)

    def leased(self, intent: Intent, owner: str) -> Intent:
        """The intent with the driver's lease renewed, or as it is where another has it."""
        if intent.held_by_other(owner, self.clock.now_ms()):
            return intent
        return replace(intent, lease=self.lease(owner))

    async def request_of(self, intent: Intent) -> PredictionRequest:
        """What the provider is asked for; the input URL outlives the provider's deadline."""
        life = timedelta(seconds=self.policy.deadline_s + _INPUT_MARGIN_S)
        input_url = await self.bucket.presign(intent.input.key, life) if intent.input else ""
        url = webhook_url(self.public_url, self.callback_url, self.provider.name, intent.tid)
        return PredictionRequest(
            tid=intent.tid,
            input_url=input_url,
            prompt=intent.photo.caption,
            webhook_url=self.provider.webhook_url(url, intent.tid) if url else None,
            deadline_s=self.policy.deadline_s,
        )

    async def with_stored_data(self, intent: Intent, news: News) -> News:
        """The news with every data URL stored as an object: an intent holds no pictures."""
        outcome = news.outcome
        if outcome is None or not any(_is_data(each) for each in outcome.outputs):
            return news
        stored: list[Output] = []
        for index, output in enumerate(outcome.outputs):
            if not _is_data(output):
                stored.append(output)
                continue
            picture = decode_data_url(output.url or "", self.fetcher.max_bytes)
            if not isinstance(picture, Fetched):
                log.warning("output skipped: %s  task=%s", picture.reason, intent.tid)
                continue
            key = output_key(intent.photo.date_s, news.prediction_id, index, picture.mime)
            await self.bucket.put(key, picture.body, content_type=picture.mime)
            stored.append(Output(key=key, mime=picture.mime))
        if not stored:
            return replace(news, outcome=Outcome(FAILED, code=ErrorCode.OUTPUT_REFUSED))
        return replace(news, outcome=replace(outcome, outputs=tuple(stored)))


def _is_data(output: Output) -> bool:
    return output.url is not None and output.url[:5].lower() == "data:"
