"""Refused webhooks change nothing (P-14, P-30)."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from jobwire.objects import BucketConfig
from jobwire.systems.predictions.signature import refusal, secret_bytes
from jobwire.systems.predictions.webhook import MAX_BODY_BYTES, handle
from tests.standins.replicate import SECRET, TOKEN, Webhook, signed
from tests.standins.server import Call, Request, Standin
from tests.support import clause
from tests.support.s3_proxy import Reply
from tests.systems.predictions.conftest import MakeSite
from tests.systems.predictions.site import IDS, Site, png

BODY = b'{"id": "abc", "status": "succeeded"}'
NOW_S = 1_790_000_000
OTHER = "whsec_" + base64.b64encode(b"another secret").decode()

Headers = Mapping[str, str]


class Silent(Standin):
    """Accepts requests and answers none of them."""

    def call(self, request: Request) -> Call:
        self.gate = lambda _name: True
        return request.method, lambda: Reply(200)


@pytest.fixture
def silent_url() -> Iterator[str]:
    with Silent() as started:
        yield started.url


def with_signature(change: Callable[[str], str]) -> dict[str, str]:
    headers = signed(BODY, NOW_S)
    return {**headers, "webhook-signature": change(headers["webhook-signature"])}


@clause("P-14", "P-30")
@pytest.mark.parametrize(
    "headers",
    [
        signed(BODY, NOW_S),
        signed(BODY, NOW_S - 299),
        signed(BODY, NOW_S + 299),
        {name.title(): value for name, value in signed(BODY, NOW_S).items()},
        with_signature(lambda right: f"v1,d3Jvbmc= {right}"),
        with_signature(lambda right: f"malformed v1a,x, v1 {right} v1,==="),
    ],
)
def test_p14_a_signed_and_fresh_webhook_is_accepted(headers: Headers) -> None:
    assert refusal(secret_bytes(SECRET), headers, BODY, NOW_S) is None


@clause("P-14", "P-30")
@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "unsigned"),
        ({**signed(BODY, NOW_S), "webhook-signature": ""}, "unsigned"),
        ({**signed(BODY, NOW_S), "webhook-id": "another"}, "does not match"),
        (signed(BODY, NOW_S, secret=OTHER), "does not match"),
        (signed(BODY + b" ", NOW_S), "does not match"),
        (with_signature(lambda right: right.replace("v1,", "v2,")), "does not match"),
        (with_signature(lambda right: right.removeprefix("v1,")), "does not match"),
        (with_signature(lambda right: "v1,x " * 20 + right), "does not match"),
        (with_signature(lambda right: right + "\u00fc"), "does not match"),
        (signed(BODY, NOW_S - 301), "stale"),
        (signed(BODY, NOW_S + 301), "stale"),
        ({**signed(BODY, NOW_S), "webhook-timestamp": str(NOW_S + 1)}, "does not match"),
    ],
)
def test_p14_a_forged_unsigned_or_stale_webhook_is_refused(headers: Headers, reason: str) -> None:
    assert reason in (refusal(secret_bytes(SECRET), headers, BODY, NOW_S) or "")


@pytest.mark.parametrize("stamp", ["1790000000.0", "+1790000000", "١٧٩", "1e9", " 1790000000"])
def test_p14_a_signed_but_malformed_timestamp_is_refused(stamp: str) -> None:
    import hmac

    text = b".".join((b"msg", stamp.encode(), BODY))
    value = base64.b64encode(hmac.digest(secret_bytes(SECRET), text, "sha256")).decode()
    headers = {
        "webhook-id": "msg",
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{value}",
    }
    assert refusal(secret_bytes(SECRET), headers, BODY, NOW_S) == "the timestamp is malformed"


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_%%%", "no base64!"])
def test_p14_an_invalid_secret_is_an_error_at_start(secret: str) -> None:
    with pytest.raises(ValueError, match="must be whsec_ and base64"):
        secret_bytes(secret)


async def submitted(site: Site) -> tuple[str, str, Webhook]:
    """A finished prediction without a webhook yet: task id, prediction id, webhook."""
    site.replicate.webhooks = "never"
    photo = site.photo()
    tid = await site.flow.submit(photo)
    await asyncio.to_thread(site.replicate.wait_idle)
    (prediction,) = site.paid(photo)
    prediction_id = str(prediction["id"])
    return tid, prediction_id, site.replicate.webhook(prediction_id)


@clause("P-14", "P-30", "P-25")
async def test_p14_a_refused_webhook_changes_nothing(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tid, prediction_id, webhook = await submitted(site)
    headers, body = webhook.headers, webhook.body
    flow = site.flow
    no_id = b'{"status": "succeeded"}'
    bad_id = json.dumps({"id": "../intents/x", "status": "succeeded"}).encode()
    now_s = site.clock.now_ms() // 1000
    refused = [
        await handle(flow, "replicate", tid, {}, {}, body),
        await handle(flow, "replicate", tid, headers, {}, body + b" "),
        await handle(flow, "replicate", tid, signed(body, now_s - 1000), {}, body),
        await handle(flow, "replicate", tid, signed(b"[]", now_s), {}, b"[]"),
        await handle(flow, "replicate", tid, signed(b"\xff", now_s), {}, b"\xff"),
        await handle(flow, "replicate", tid, signed(no_id, now_s), {}, no_id),
        await handle(flow, "replicate", tid, signed(bad_id, now_s), {}, bad_id),
        await handle(flow, "replicate", tid, headers, {}, b"x" * (MAX_BODY_BYTES + 1)),
        await handle(flow, "cog", tid, headers, {}, body),
    ]
    assert [answer.status for answer in refused] == [401, 401, 401, 400, 400, 400, 400, 413, 404]
    assert await site.open_tasks() == [tid]
    document = await site.task(prediction_id)
    assert document is not None
    assert document["status"] == "queued"
    for secret in (TOKEN, SECRET, headers["webhook-signature"], "X-Amz-Signature"):
        assert secret not in caplog.text


@clause("P-14")
async def test_p14_a_webhook_replayed_to_another_url_is_refused(site: Site) -> None:
    """The signature does not cover the URL: the prediction must be the one of its task."""
    first, first_id, webhook = await submitted(site)
    second, second_id, _ = await submitted(site)
    assert await site.receiver_status(second, webhook) == 403
    for prediction_id in (first_id, second_id):
        document = await site.task(prediction_id)
        assert document is not None
        assert document["status"] == "queued"
    assert await site.receiver_status(first, webhook) == 200
    assert await site.open_tasks() == [second]


@clause("P-14")
async def test_p14_a_webhook_replayed_to_a_task_without_an_id_is_not_adopted(site: Site) -> None:
    from tests.support.s3_proxy import dropped

    _, _, webhook = await submitted(site)
    site.replicate.plan("create", dropped)
    photo = site.photo()
    tid = await site.flow.submit(photo)
    assert await site.state(photo) == "submitting"
    assert await site.receiver_status(tid, webhook) == 404
    assert await site.state(photo) == "submitting"


@clause("P-14")
async def test_p14_a_webhook_without_a_task_is_answered_with_404(site: Site) -> None:
    now_s = site.clock.now_ms() // 1000
    for tid in ("", "a" * 32, "../../x", "x" * 5000):
        assert await site.receiver_status(tid, Webhook("", signed(BODY, now_s), BODY)) == 404


@clause("P-14")
async def test_p14_a_repeated_webhook_of_a_settled_task_sends_nothing(site: Site) -> None:
    tid, prediction_id, webhook = await submitted(site)
    assert await site.receiver_status(tid, webhook) == 200
    calls = len(site.chat.calls)
    for _ in range(3):
        assert await site.receiver_status(tid, site.replicate.webhook(prediction_id)) == 200
    assert len(site.chat.calls) == calls


@clause("P-14")
async def test_p14_when_the_store_is_unavailable_the_provider_retries(
    site: Site, moto: BucketConfig
) -> None:
    from dataclasses import replace

    from tests.systems.predictions.site import build_flow, through

    away = replace(through(site.addresses, "http://127.0.0.1:9"))
    away.bucket["timeout_s"] = 1.0
    flow = build_flow(away, site.clock)
    headers = signed(BODY, int(time.time()))
    assert (await handle(flow, "replicate", "a" * 32, headers, {}, BODY)).status == 503


@clause("P-14", "P-21", "P-30")
async def test_p30_cog_s_webhook_needs_the_token_of_its_own_url(
    make_site: MakeSite, silent_url: str
) -> None:
    site = make_site(cog_url=silent_url)
    photo = site.photo()
    tid = await site.flow.submit(photo)
    picture = "data:image/png;base64," + base64.b64encode(png(9, 9, 9)).decode()
    body = json.dumps({"id": tid, "status": "succeeded", "output": picture}).encode()
    other = IDS.webhook_token("b" * 32)
    for query in ({}, {"token": ""}, {"token": "x"}, {"token": other}, {"token": "\u00fc"}):
        assert (await handle(site.flow, "cog", tid, {}, query, body)).status == 401
    assert site.chat.pictures(photo.chat_id) == []
    right = {"token": IDS.webhook_token(tid)}
    assert (await handle(site.flow, "cog", tid, {}, right, body)).status == 200
    assert site.chat.pictures(photo.chat_id) == [png(9, 9, 9)]


@clause("P-21")
@pytest.mark.parametrize("refused", ["data:image/png;base64,AAAA", "{url}/file/none"])
async def test_p21_pictures_beside_a_refused_one_keep_their_own_keys(
    make_site: MakeSite, silent_url: str, refused: str
) -> None:
    """Data URLs are stored when the webhook comes, other outputs later: each has its own key."""
    site = make_site(cog_url=silent_url)
    photo = site.photo()
    tid = await site.flow.submit(photo)
    picture = "data:image/png;base64," + base64.b64encode(png(9, 9, 9)).decode()
    url = site.chat.url
    outputs = [refused.format(url=url), picture, f"{url}/file/{photo.file_id}"]
    body = json.dumps({"id": tid, "status": "succeeded", "output": outputs}).encode()
    token = {"token": IDS.webhook_token(tid)}
    assert (await handle(site.flow, "cog", tid, {}, token, body)).status == 200
    kept = [png(9, 9, 9), site.chat.files[photo.file_id or ""]]
    assert site.chat.pictures(photo.chat_id) == kept
