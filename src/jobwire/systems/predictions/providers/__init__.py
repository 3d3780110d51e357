"""Providers of predictions behind one small protocol (P-20).

replicate.py  api.replicate.com: ids of its own, signed webhooks, a list, polling
cog.py        any cog server: our ids, unsigned webhooks, no polling
outputs.py    the forms that an output may have

What a provider answers is a value. Only `create` cannot be repeated, and only on Replicate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from jobwire.systems.predictions.contract import EVENTS_FILTER
from jobwire.systems.predictions.http_client import NoAnswer
from jobwire.systems.predictions.intent import News


@dataclass(frozen=True, slots=True)
class PredictionRequest:
    """What a provider is asked for."""

    tid: str
    input_url: str
    prompt: str
    webhook_url: str | None
    deadline_s: int

    def body(self, input_field: str) -> dict[str, object]:
        """What both providers take: the model's input, and where the outcome is to be sent."""
        given = {input_field: self.input_url}
        if self.prompt:
            given["prompt"] = self.prompt
        if not self.webhook_url:
            return {"input": given}
        return {
            "input": given,
            "webhook": self.webhook_url,
            "webhook_events_filter": list(EVENTS_FILTER),
        }


@dataclass(frozen=True, slots=True)
class Busy:
    """Not created; the provider asks to wait."""

    after_s: float | None


@dataclass(frozen=True, slots=True)
class CreateRejected:
    """Not created, and never will be; the reason goes to the log and the bot's owner only."""

    reason: str
    of_account: bool = False
    """The provider refuses our token or our account, whatever is asked."""


OF_ACCOUNT: Final = frozenset({401, 402, 403})
"""The answers that are about the account: wrong token, not paid, not allowed."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The provider does not know this prediction."""


@dataclass(frozen=True, slots=True)
class WebhookCall:
    """A webhook as it arrived; `tid` is the last part of its path."""

    tid: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes


class Provider(Protocol):
    """One provider."""

    name: str
    model: str
    version: str | None
    signature_headers: tuple[str, ...]
    """The headers of a signed webhook; empty if webhooks are not signed."""

    async def create(self, request: PredictionRequest) -> News | Busy | CreateRejected | NoAnswer:
        """Ask for a prediction, once: no retries."""
        ...

    async def find(self, request: PredictionRequest, since_ms: int) -> list[News] | NoAnswer:
        """Predictions that an earlier `create` of this task made, oldest first."""
        ...

    async def poll(self, prediction_id: str, request: PredictionRequest) -> News | Gone | NoAnswer:
        """Ask for the present state of a prediction."""
        ...

    async def cancel(self, prediction_id: str) -> None:
        """Ask to stop a prediction; best effort, never raises."""
        ...

    def webhook_url(self, url: str, tid: str) -> str:
        """The address for the task's webhook, with a token where the provider does not sign."""
        ...

    def refusal(self, call: WebhookCall, now_s: int) -> str | None:
        """Why a webhook is refused; None if it is the provider's."""
        ...

    def read(self, body: bytes) -> News | None:
        """The news in a webhook's body; None if there are none."""
        ...
