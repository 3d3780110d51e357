"""Any cog server: predictions under our own ids by its idempotent PUT.

A PUT of a running prediction answers with its state; of one that ended, it runs it again, which
brings its webhook again. So the repeated PUT is what finds, polls and recovers a prediction here.
cog does not sign its webhooks: the URL carries a token. Without an address for webhooks the PUT
waits for the outcome, since cog has no other way to ask for it.
"""

from __future__ import annotations

import hmac
import json
from typing import Final

from jobwire.systems.predictions.http_client import NoAnswer, exchange, in_background
from jobwire.systems.predictions.ids import TaskIds
from jobwire.systems.predictions.intent import News
from jobwire.systems.predictions.json_values import loads
from jobwire.systems.predictions.providers import (
    OF_ACCOUNT,
    Busy,
    CreateRejected,
    Gone,
    PredictionRequest,
    WebhookCall,
)
from jobwire.systems.predictions.providers.outputs import news_of

_TIMEOUT_S: Final = 30.0
_MAX_ANSWER: Final = 64 * 1024 * 1024
# A slot is free again as soon as the model is done, and an attempt costs nothing.
_FREE_SLOT_S: Final = 2.0
_AT_CAPACITY: Final = frozenset({409, 429, 503})
_NOT_CREATED: Final = frozenset({400, 401, 403, 404, 405, 413, 422})


class Cog:
    """`model` is a name for the task object only: the server at `url` runs one model."""

    name = "cog"
    signature_headers: tuple[str, ...] = ()

    def __init__(self, *, url: str, model: str, ids: TaskIds, input_field: str = "image") -> None:
        self.model = model
        self.version: str | None = None
        self._url = url.rstrip("/")
        self._ids = ids
        self._input_field = input_field

    async def create(self, request: PredictionRequest) -> News | Busy | CreateRejected | NoAnswer:
        return await self._put(request.tid, request)

    async def find(
        self,
        request: PredictionRequest,
        since_ms: int,  # noqa: ARG002 - the protocol's
    ) -> list[News] | NoAnswer:
        answer = await self._put(request.tid, request)
        if isinstance(answer, News):
            return [answer]
        return NoAnswer("cog is busy" if isinstance(answer, Busy) else answer.reason)

    async def poll(self, prediction_id: str, request: PredictionRequest) -> News | Gone | NoAnswer:
        answer = await self._put(prediction_id, request)
        if isinstance(answer, News | NoAnswer):
            return answer
        return NoAnswer("cog is busy" if isinstance(answer, Busy) else answer.reason)

    async def cancel(self, prediction_id: str) -> None:
        url = f"{self._url}/predictions/{prediction_id}/cancel"
        await in_background(
            lambda: exchange("POST", url, body=b"", timeout_s=_TIMEOUT_S, max_bytes=_MAX_ANSWER)
        )

    def webhook_url(self, url: str, tid: str) -> str:
        return f"{url}{'&' if '?' in url else '?'}token={self._ids.webhook_token(tid)}"

    def refusal(self, call: WebhookCall, now_s: int) -> str | None:  # noqa: ARG002 - the protocol's
        token = call.query.get("token", "")
        if not token:
            return "unsigned"
        expected = self._ids.webhook_token(call.tid)
        matches = hmac.compare_digest(expected.encode(), token.encode())
        return None if matches else "the token does not match"

    def read(self, body: bytes) -> News | None:
        return news_of(loads(body))

    async def _put(
        self, prediction_id: str, request: PredictionRequest
    ) -> News | Busy | CreateRejected | NoAnswer:
        headers, timeout_s = {"content-type": "application/json"}, float(request.deadline_s)
        if request.webhook_url:
            headers["prefer"], timeout_s = "respond-async", _TIMEOUT_S
        answer = await in_background(
            lambda: exchange(
                "PUT",
                f"{self._url}/predictions/{prediction_id}",
                headers=headers,
                body=json.dumps(request.body(self._input_field)).encode(),
                timeout_s=timeout_s,
                max_bytes=_MAX_ANSWER,
            )
        )
        if isinstance(answer, NoAnswer):
            return answer
        if answer.status in _AT_CAPACITY:
            return Busy(_FREE_SLOT_S)
        if answer.status in _NOT_CREATED:
            return CreateRejected(f"cog answered {answer.status}", answer.status in OF_ACCOUNT)
        news = news_of(loads(answer.body)) if 200 <= answer.status < 300 else None
        if news is None or news.prediction_id != prediction_id:
            return NoAnswer(f"cog answered {answer.status}")
        return news
