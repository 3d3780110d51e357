"""What every step of the flow works with, and the few operations that several steps share."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal

from msgspec.structs import replace

from jobwire.job.clock import Clock
from jobwire.objects import Bucket
from jobwire.systems.predictions.byte_budget import MIB, ByteBudget
from jobwire.systems.predictions.chat import Chat
from jobwire.systems.predictions.contract import TaskErrorCode, webhook_url
from jobwire.systems.predictions.counts import Counts
from jobwire.systems.predictions.fetch import Fetcher
from jobwire.systems.predictions.ids import TaskIds
from jobwire.systems.predictions.intent import FlowTimes, Intent, Lease, schedule_retry
from jobwire.systems.predictions.limits import Limits
from jobwire.systems.predictions.providers import PredictionRequest, Provider
from jobwire.systems.predictions.records import Current, Records
from jobwire.systems.predictions.task import Document, document_of

# The intent as it is now (None: gone), and whether the driver goes on.
Stepped = tuple[Current | None, bool]

_INPUT_MARGIN_S: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDeps:
    """What the flow works with. `bot` names the bot in task ids."""

    bucket: Bucket
    records: Records
    limits: Limits
    provider: Provider
    chat: Chat
    fetcher: Fetcher
    ids: TaskIds
    clock: Clock
    policy: FlowTimes = field(default_factory=FlowTimes)
    bot: str = ""
    tenant: str = ""
    public_url: str = ""
    callback_url: str = ""
    groups: Literal["addressed", "all", "never"] = "addressed"
    owner_chat: int = 0
    """The chat that reads of pictures that were not delivered; 0: only the log has them."""
    counts: Counts = field(default_factory=Counts)
    alerted_ms: dict[str, int] = field(default_factory=dict[str, int])
    """When this process last told the owner of the bot of a trouble."""
    budget: ByteBudget = field(default_factory=lambda: ByteBudget(24 * MIB))
    """For all pictures that this process has in memory."""
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

    def document_of(self, intent: Intent) -> Document:
        """The task object of an intent that has a prediction and is not finished."""
        return document_of(intent, model=self.provider.model, version=self.provider.version)

    async def schedule_retry(
        self, current: Current, trouble: TaskErrorCode | None = None, after_s: float | None = None
    ) -> Stepped:
        """Try the step again later, unless another driver has made it."""
        state = current.intent.state

        def later(intent: Intent) -> Intent:
            if intent.state != state:
                return intent
            marked = replace(intent, trouble=str(trouble)) if trouble else intent
            return schedule_retry(marked, self.clock.now_ms(), self.policy, after_s)

        return await self.records.update(current, later), True

    async def mark_delivered(
        self, current: Current, trouble: TaskErrorCode | None = None
    ) -> Stepped:
        """Nothing is left to do for the user; `trouble` is why the user does not have it."""

        def delivered(intent: Intent) -> Intent:
            marked = replace(intent, trouble=str(trouble)) if trouble else intent
            return replace(marked, state="delivered", lease=None)

        return await self.records.update(current, delivered), True
