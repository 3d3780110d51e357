"""Replicate: predictions over its documented HTTP API.

Its create has no idempotency key, so it is never repeated blindly: a create whose answer was lost
is found again in the list by the input URL, which holds the task's UUID. The token is sent to the
API's host only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote, urlsplit

from jobwire.systems.predictions.http_client import NoAnswer, Response, exchange, in_background
from jobwire.systems.predictions.ids import uuid_of
from jobwire.systems.predictions.intent import News
from jobwire.systems.predictions.json_values import items, loads, mapping
from jobwire.systems.predictions.providers import (
    OF_ACCOUNT,
    Busy,
    CreateRejected,
    Gone,
    PredictionRequest,
    WebhookCall,
)
from jobwire.systems.predictions.providers.outputs import news_of
from jobwire.systems.predictions.signature import HEADERS, refusal, secret_bytes

API_URL: Final = "https://api.replicate.com"
_TIMEOUT_S: Final = 30.0
# A list holds a hundred predictions, with their logs and small outputs.
_MAX_ANSWER: Final = 32 * 1024 * 1024
_MAX_PAGES: Final = 20
_CLOCK_MARGIN: Final = timedelta(minutes=5)
_NOT_CREATED: Final = frozenset({400, 401, 402, 403, 404, 405, 413, 415, 422})
_RESETS: Final = re.compile(r"resets? in ~?(\d{1,6})", re.IGNORECASE)


class Replicate:
    """`model` is `owner/name`, `owner/name:version` or a version's id."""

    name = "replicate"
    signature_headers: tuple[str, ...] = HEADERS

    def __init__(
        self,
        *,
        model: str,
        token: str,
        webhook_secret: str,
        api_url: str = API_URL,
        input_field: str = "image",
    ) -> None:
        self.model, _, version = model.partition(":")
        self.version = version or None
        self._asked_for = model
        self._token = token
        self._api_url = api_url.rstrip("/")
        self._input_field = input_field
        self._webhook_key = secret_bytes(webhook_secret)

    async def create(self, request: PredictionRequest) -> News | Busy | CreateRejected | NoAnswer:
        body = {"version": self._asked_for, **request.body(self._input_field)}
        answer = await self._send(
            "POST", "/v1/predictions", body, {"cancel-after": f"{request.deadline_s}s"}
        )
        if isinstance(answer, NoAnswer):
            return answer
        if answer.status == 429:
            return Busy(_retry_after_s(answer))
        if answer.status in _NOT_CREATED:
            reason = f"replicate answered {answer.status} to create"
            return CreateRejected(reason, answer.status in OF_ACCOUNT)
        news = news_of(loads(answer.body)) if 200 <= answer.status < 300 else None
        return news or NoAnswer(f"replicate answered {answer.status} to create")

    async def find(self, request: PredictionRequest, since_ms: int) -> list[News] | NoAnswer:
        since = datetime.fromtimestamp(since_ms / 1000, UTC) - _CLOCK_MARGIN
        path: str | None = f"/v1/predictions?created_after={quote(since.isoformat())}"
        uuid, found = uuid_of(request.tid), list[News]()
        for _ in range(_MAX_PAGES):
            answer = await self._send("GET", path)
            if isinstance(answer, NoAnswer):
                return answer
            page = loads(answer.body) if answer.status == 200 else None
            if page is None:
                return NoAnswer(f"replicate answered {answer.status} to list")
            for each in items(page.get("results")):
                news = news_of(mapping(each))
                if news and uuid in news.input_text:
                    found.append(news)
            path = self._own_path(page.get("next"))
            if path is None:
                break
        return found[::-1]  # the list is newest first

    async def poll(
        self,
        prediction_id: str,
        request: PredictionRequest,  # noqa: ARG002 - the protocol's
    ) -> News | Gone | NoAnswer:
        answer = await self._send("GET", f"/v1/predictions/{quote(prediction_id, safe='')}")
        if isinstance(answer, NoAnswer):
            return answer
        if answer.status in (404, 410):
            return Gone()
        news = news_of(loads(answer.body)) if answer.status == 200 else None
        if news is None or news.prediction_id != prediction_id:
            return NoAnswer(f"replicate answered {answer.status} to get")
        return news

    async def cancel(self, prediction_id: str) -> None:
        await self._send("POST", f"/v1/predictions/{quote(prediction_id, safe='')}/cancel")

    def webhook_url(self, url: str, tid: str) -> str:  # noqa: ARG002 - the protocol's
        return url

    def refusal(self, call: WebhookCall, now_s: int) -> str | None:
        return refusal(self._webhook_key, call.headers, call.body, now_s)

    def read(self, body: bytes) -> News | None:
        return news_of(loads(body))

    async def _send(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response | NoAnswer:
        sent = {"authorization": f"Bearer {self._token}", **(headers or {})}
        if body is not None:
            sent["content-type"] = "application/json"
        return await in_background(
            lambda: exchange(
                method,
                self._api_url + path,
                headers=sent,
                body=None if body is None else json.dumps(body).encode(),
                timeout_s=_TIMEOUT_S,
                max_bytes=_MAX_ANSWER,
            )
        )

    def _own_path(self, following: object) -> str | None:
        """Path and query of the next page; another host would get our token."""
        if not isinstance(following, str) or not following:
            return None
        parts, own = urlsplit(following), urlsplit(self._api_url)
        if parts.netloc not in ("", own.netloc):
            return None
        return parts.path + (f"?{parts.query}" if parts.query else "")


def _retry_after_s(answer: Response) -> float | None:
    """How long to wait: by the header, the body's number, or its prose."""
    header = answer.headers.get("retry-after", "")
    if header.isascii() and header.isdigit():
        return float(header[:6])
    body = loads(answer.body) or {}
    number, detail = body.get("retry_after"), body.get("detail")
    if isinstance(number, int | float) and 0 <= number < 1e6:
        return float(number)
    prose = _RESETS.search(detail) if isinstance(detail, str) else None
    return float(prose[1]) if prose else None
