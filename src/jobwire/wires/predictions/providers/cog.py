"""Any cog server: predictions under our own ids by its idempotent PUT.

A PUT of a running prediction answers with its state; of one that ended, it runs it again, which
brings its webhook again. So the repeated PUT is what finds, polls and recovers a prediction here.
cog does not sign its webhooks: the URL carries a token. Without an address for webhooks the PUT
waits for the outcome, since cog has no other way to ask for it.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from typing import Final

from jobwire.wires.predictions.contract import EVENTS_FILTER
from jobwire.wires.predictions.http_client import (
    AnswerTooLarge,
    NoAnswer,
    Response,
    exchange_in_background,
)
from jobwire.wires.predictions.ids import TaskIds
from jobwire.wires.predictions.intent import News
from jobwire.wires.predictions.providers import (
    Busy,
    CreateRejected,
    Gone,
    PredictionRequest,
    Unknown,
    WebhookCall,
)
from jobwire.wires.predictions.providers.outputs import loads, news_of

_TIMEOUT_S: Final = 30.0
_MAX_ANSWER: Final = 64 * 1024 * 1024
# A slot is free again as soon as the model is done, and an attempt costs nothing.
_FREE_SLOT_S: Final = 2.0
_AT_CAPACITY: Final = frozenset({409, 429, 503})
_NOT_CREATED: Final = frozenset({400, 401, 403, 404, 405, 413, 422})


class Cog:
    """`model` is a name for the task object only: the server at `url` runs one model."""

    name = "cog"

    def __init__(self, *, url: str, model: str, ids: TaskIds, input_field: str = "image") -> None:
        self.model = model
        self.version: str | None = None
        self._url = url.rstrip("/")
        self._ids = ids
        self._input_field = input_field

    async def create(self, request: PredictionRequest) -> News | Busy | CreateRejected | Unknown:
        return await self._put(request.tid, request)

    async def find(
        self,
        request: PredictionRequest,
        since_ms: int,  # noqa: ARG002 - the protocol's
    ) -> list[News] | Unknown:
        answer = await self._put(request.tid, request)
        if isinstance(answer, News):
            return [answer]
        return Unknown("cog is busy" if isinstance(answer, Busy) else answer.reason)

    async def poll(self, prediction_id: str, request: PredictionRequest) -> News | Gone | Unknown:
        answer = await self._put(prediction_id, request)
        if isinstance(answer, News | Unknown):
            return answer
        return Unknown("cog is busy" if isinstance(answer, Busy) else answer.reason)

    async def cancel(self, prediction_id: str) -> None:
        await self._send("POST", f"/predictions/{prediction_id}/cancel", b"", {})

    def webhook_url(self, url: str, tid: str) -> str:
        return f"{url}{'&' if '?' in url else '?'}token={self._ids.webhook_token(tid)}"

    def refusal(self, call: WebhookCall) -> str | None:
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
    ) -> News | Busy | CreateRejected | Unknown:
        given: dict[str, object] = {self._input_field: request.input_url}
        if request.prompt:
            given["prompt"] = request.prompt
        body: dict[str, object] = {"input": given}
        headers, timeout_s = {"content-type": "application/json"}, float(request.deadline_s)
        if request.webhook_url:
            body["webhook"] = request.webhook_url
            body["webhook_events_filter"] = list(EVENTS_FILTER)
            headers["prefer"], timeout_s = "respond-async", _TIMEOUT_S
        answer = await self._send(
            "PUT", f"/predictions/{prediction_id}", json.dumps(body).encode(), headers, timeout_s
        )
        if isinstance(answer, Unknown):
            return answer
        if answer.status in _AT_CAPACITY:
            return Busy(_FREE_SLOT_S)
        if answer.status in _NOT_CREATED:
            return CreateRejected(f"cog answered {answer.status}")
        news = news_of(loads(answer.body)) if 200 <= answer.status < 300 else None
        if news is None or news.prediction_id != prediction_id:
            return Unknown(f"cog answered {answer.status}")
        return news

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        timeout_s: float = _TIMEOUT_S,
    ) -> Response | Unknown:
        try:
            return await exchange_in_background(
                method,
                self._url + path,
                headers=headers,
                body=body,
                timeout_s=timeout_s,
                max_bytes=_MAX_ANSWER,
            )
        except (NoAnswer, AnswerTooLarge) as error:
            return Unknown(f"cog did not answer ({error})")
