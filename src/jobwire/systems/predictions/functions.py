"""The bot as cloud functions: events of Yandex Cloud Functions and of AWS Lambda (P-23).

    bot        updates of Telegram
    callback   webhooks of the provider; the task id is in the query (`tid`) or ends the path
    reconcile  a timer, every one or two minutes

An event is checked and answered here; the work is that of the HTTP routes. Nothing runs after the
answer: a function is frozen then.
"""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, dataclass
from typing import Final
from urllib.parse import parse_qsl

from jobwire.objects import ObjectsError
from jobwire.systems.predictions import webhook
from jobwire.systems.predictions.flow import Flow
from jobwire.systems.predictions.json_values import items, mapping, text
from jobwire.systems.predictions.reconcile import reconcile
from jobwire.systems.predictions.telegram.bot import TelegramBot, handle_update
from jobwire.systems.predictions.webhook import Answer

log: Final = logging.getLogger("jobwire.predictions")

# What a pass leaves of the function's time, to end what it has begun.
_RESERVE_S: Final = 10.0
_DEFAULT_PASS_S: Final = 40.0

Response = dict[str, object]


@dataclass(frozen=True, slots=True)
class HttpEvent:
    """An HTTP request as a function gets it; header names in lower case."""

    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes


class Functions:
    """The three functions of one bot."""

    def __init__(self, bot: TelegramBot, telegram_secret: str) -> None:
        self._bot = bot
        self._flow: Flow = bot.flow
        self._secret = telegram_secret

    def bot(self, event: object) -> Response:
        """An update of Telegram."""
        given = read_event(event)
        if isinstance(given, Answer):
            return response(given)
        return _run(handle_update(self._bot, self._secret, given.headers, given.body))

    def callback(self, event: object) -> Response:
        """A webhook of the provider."""
        given = read_event(event)
        if isinstance(given, Answer):
            return response(given)
        tid = given.query.get("tid") or given.path.rstrip("/").rpartition("/")[2]
        provider = self._flow.deps.provider.name
        return _run(
            webhook.handle(self._flow, provider, tid, given.headers, given.query, given.body)
        )

    def reconcile(self, event: object, context: object = None) -> Response:
        """A timer's event. An HTTP request is refused: anyone could send it."""
        if not is_timer(event):
            log.error("reconcile refused: the event is not from a timer; no task is finished")
            return response(Answer(403, "only a timer may call this"))
        return _run(self._reconcile(_pass_s(context)))

    async def _reconcile(self, limit_s: float) -> Answer:
        try:
            report = await reconcile(self._flow, limit_s=limit_s)
        except ObjectsError as error:
            log.error("reconcile pass aborted error=%(error)s", {"error": error})
            return Answer(503, "the bucket does not answer")
        log.info("reconcile pass done", extra=asdict(report))
        return Answer(200, json.dumps(asdict(report)))


def read_event(event: object) -> HttpEvent | Answer:
    """The HTTP request in an event of either cloud, or the answer to what is none."""
    given = mapping(event)
    lambda_http = mapping(mapping(given.get("requestContext")).get("http"))
    method = text(given.get("httpMethod")) or text(lambda_http.get("method"))
    if not method:
        return Answer(400, "this function takes HTTP requests only")
    if method.upper() != "POST":
        return Answer(405, "send POST")
    body = _body(given)
    if body is None:
        return Answer(400, "the body is marked as base64 and cannot be decoded")
    return HttpEvent(
        path=text(given.get("rawPath")) or text(given.get("path")) or text(given.get("url")),
        headers={
            name.lower(): value
            for name, value in mapping(given.get("headers")).items()
            if isinstance(value, str)
        },
        query=_query(given),
        body=body,
    )


def is_timer(event: object) -> bool:
    """Whether an event is that of a timer: Yandex's trigger, or a schedule of EventBridge, whose
    Scheduler sends `{}` where no input is set."""
    if event == {}:
        return True
    given = mapping(event)
    if "httpMethod" in given or "requestContext" in given:
        return False
    kinds = [
        text(mapping(mapping(each).get("event_metadata")).get("event_type"))
        for each in items(given.get("messages"))
    ]
    scheduled = given.get("source") in ("aws.events", "aws.scheduler")
    return scheduled or any(kind.endswith(".TimerMessage") for kind in kinds)


def _body(given: Mapping[str, object]) -> bytes | None:
    body = text(given.get("body"))
    if given.get("isBase64Encoded") is not True:
        return body.encode("utf-8", "surrogatepass")
    try:
        return b64decode(body, validate=True)
    except (Base64Error, ValueError):
        return None


def _query(given: Mapping[str, object]) -> dict[str, str]:
    """Lambda joins repeated parameters by a comma, so its raw query is read where there is one."""
    raw = given.get("rawQueryString")
    if isinstance(raw, str):
        try:
            return dict(parse_qsl(raw, max_num_fields=64))
        except ValueError:
            return {}
    return {
        name: value
        for name, value in mapping(given.get("queryStringParameters")).items()
        if isinstance(value, str)
    }


def _pass_s(context: object) -> float:
    """How long a pass may begin new work, by the time that the function has left."""
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    if not callable(remaining):
        return _DEFAULT_PASS_S
    left = remaining()
    return max(left / 1000 - _RESERVE_S, 1.0) if isinstance(left, int | float) else _DEFAULT_PASS_S


def _run(work: Coroutine[object, object, Answer]) -> Response:
    """Run to the end; an error becomes an answer, never a traceback for the caller."""
    try:
        return response(asyncio.run(work))
    except Exception:
        log.exception("function failed")
        return response(Answer(500, "internal error"))


def response(answer: Answer) -> Response:
    """An answer as both clouds take it."""
    return {
        "statusCode": answer.status,
        "headers": {"Content-Type": "text/plain; charset=utf-8"},
        "body": answer.text,
        "isBase64Encoded": False,
    }
