"""A provider's webhook: headers and raw body in, an answer out (P-14, P-30).

Called by an HTTP route or a cloud function. The order is: size, signature and age over the raw
bytes, then the body. 200 means that the news is recorded; every other answer makes the provider
send them again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from jobwire.objects import ObjectsError
from jobwire.systems.predictions.flow import Flow, Receipt
from jobwire.systems.predictions.providers import WebhookCall
from jobwire.systems.predictions.records import BadIntent

log: Final = logging.getLogger("jobwire.predictions")

# Outputs may come as data URLs inside the body.
MAX_BODY_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """What the provider gets: a status and a few words, none of them secret."""

    status: int
    text: str


async def handle(
    flow: Flow,
    provider: str,
    tid: str,
    headers: Mapping[str, str],
    query: Mapping[str, str],
    body: bytes,
) -> Answer:
    """Take one webhook. `tid` is the last part of its URL's path; it may be empty."""
    refused = refusal(flow, provider, WebhookCall(tid, headers, query, body))
    if refused is None:
        return await take(flow, tid, body)
    log.warning(
        "webhook refused provider=%(provider)s reason=%(reason)s",
        {"provider": provider, "reason": refused.text},
    )
    return refused


def refusal(flow: Flow, provider: str, call: WebhookCall) -> Answer | None:
    """Why a webhook is refused; None if it is the provider's. Not logged here: strangers choose how
    many there are."""
    if refused := head_refusal(flow, provider, call.headers):
        return refused
    configured = flow.deps.provider
    if len(call.body) > MAX_BODY_BYTES:
        return _counted(flow, Answer(413, "the body is too large"))
    now_s = flow.deps.clock.now_ms() // 1000
    refused = configured.refusal(call, now_s)
    if refused is None:
        return None
    return _counted(flow, Answer(401, refused))


def head_refusal(flow: Flow, provider: str, headers: Mapping[str, str]) -> Answer | None:
    """The same by the headers alone, before the body is received."""
    configured = flow.deps.provider
    if provider != configured.name:
        return _counted(flow, Answer(404, "this gateway does not have that provider"))
    given = {name.lower() for name, value in headers.items() if value}
    if given.issuperset(configured.signature_headers):
        return None
    return _counted(flow, Answer(401, "unsigned"))


async def take(flow: Flow, tid: str, body: bytes) -> Answer:
    """Take a webhook that was not refused."""
    return _counted(flow, await _take(flow, tid, body))


async def _take(flow: Flow, tid: str, body: bytes) -> Answer:
    configured = flow.deps.provider
    news = configured.read(body)
    if news is None:
        log.warning(
            "webhook refused: no prediction in its body provider=%(provider)s",
            {"provider": configured.name},
        )
        return Answer(400, "the body is not a prediction")
    try:
        receipt = await flow.receive(tid, news)
    except (ObjectsError, BadIntent) as error:
        log.error("webhook not recorded error=%(error)s", {"error": error})
        return Answer(503, "not recorded, send it again")
    match receipt:
        case Receipt.RECORDED:
            return Answer(200, "recorded")
        case Receipt.KNOWN:
            return Answer(200, "known")
        case Receipt.UNKNOWN:
            return Answer(404, "no such task yet")
        case Receipt.FOREIGN:
            log.warning(
                "webhook refused: it belongs to another task provider=%(provider)s",
                {"provider": configured.name},
            )
            return Answer(403, "the prediction belongs to another task")


def _counted(flow: Flow, answer: Answer) -> Answer:
    flow.deps.counts.add("webhooks", str(answer.status))
    return answer
