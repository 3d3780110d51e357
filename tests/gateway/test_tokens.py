"""Stream tokens: one stream, one tenant, a short time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from jobwire.gateway.auth import Keyring
from jobwire.gateway.problems import Problem
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.tokens import TokenMaker
from tests.gateway.events import EventsFeature, Reader, Seen
from tests.gateway.server import Serving, bearer, key
from tests.support import clause, wait_until_sync

PATH = "/channels/a/events"


@pytest.fixture(scope="module")
def events_feature() -> EventsFeature:
    return EventsFeature()


@pytest.fixture(scope="module")
def served(events_feature: EventsFeature) -> Iterator[Serving]:
    keys = (key("reader", "read", tenant="acme"), key("writer", "submit", tenant="acme"))
    with Serving(
        GatewaySettings(keys=keys, token_ttl=timedelta(seconds=60)), events_feature
    ) as served:
        yield served


def token(served: Serving, path: str = PATH) -> str:
    answer = served.client.post("/v1/stream-tokens", json={"path": path}, headers=bearer("reader"))
    assert answer.status_code == 201, answer.text
    body = answer.json()
    assert body["url"] == f"{path}?token={body['token']}"
    assert body["expires_at"].endswith("Z")
    return body["token"]


@clause("O-6")
def test_a_token_opens_its_stream_for_its_tenant(
    served: Serving, events_feature: EventsFeature
) -> None:
    with Reader.open(served, f"{PATH}?token={token(served)}") as reader:
        assert reader.next() == Seen("hello", '{"channel":1}', None)
    assert events_feature.opened[-1][0] == "acme"


@clause("O-6")
def test_a_token_can_be_used_with_last_event_id(
    served: Serving, events_feature: EventsFeature
) -> None:
    url = f"{PATH}?token={token(served)}&last_event_id=5-1"
    with Reader.open(served, url) as reader:
        assert reader.next() is not None
    assert events_feature.opened[-1] == ("acme", "5-1")


@clause("O-6")
def test_a_token_opens_nothing_else(served: Serving) -> None:
    good = token(served)
    for path in ("/channels/b/events", "/channels/a%2e/events", "/count/3"):
        answer = served.client.get(path, params={"token": good})
        assert (answer.status_code, answer.json()["code"]) == (401, "bad_token")
    # Only streams accept tokens.
    other = served.client.get("/metrics", params={"token": good})
    assert (other.status_code, other.json()["code"]) == (401, "unauthorized")
    made = served.client.post(f"/v1/stream-tokens?token={good}", json={"path": PATH})
    assert made.status_code == 401


@clause("O-6")
def test_a_modified_token_is_refused(served: Serving) -> None:
    good = token(served)
    claims, _, signature = good.partition(".")
    other = token(served, "/channels/b/events").partition(".")
    for bad in (
        "",
        ".",
        claims,
        f"{claims}.",
        f"{claims}.{signature[:-2]}AA",
        f"{other[0]}.{signature}",
        "!!!.???",
        "ü.ü",
        good + "x",
    ):
        answer = served.client.get(PATH, params={"token": bad})
        assert (answer.status_code, answer.json()["code"]) == (401, "bad_token"), bad


@clause("O-6")
def test_a_token_is_made_only_for_streams_and_by_readers(served: Serving) -> None:
    for path in ("/metrics", "/nowhere", "/channels/a", f"{PATH}?x=1", "http://evil/"):
        answer = served.client.post(
            "/v1/stream-tokens", json={"path": path}, headers=bearer("reader")
        )
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    refused = served.client.post("/v1/stream-tokens", json={"path": PATH}, headers=bearer("writer"))
    assert refused.status_code == 403


@clause("O-6")
def test_a_token_expires() -> None:
    keys = (key("reader", "read"),)
    settings = GatewaySettings(keys=keys, token_ttl=timedelta(seconds=1))
    with Serving(settings, EventsFeature()) as served:
        short = token(served)

        def is_refused() -> bool:
            with Reader.open(served, f"{PATH}?token={short}") as reader:
                return reader.answer.status == 401

        wait_until_sync(is_refused, "the token to expire")


@clause("O-6")
def test_gateways_with_one_secret_accept_each_others_tokens() -> None:
    keyring = Keyring([key("reader", "read", tenant="acme")])
    secret = "s" * 32
    made = (
        TokenMaker(secret, 60, keyring).make(keyring.authenticate(b"Bearer jw_reader"), PATH).text
    )
    assert TokenMaker(secret, 60, keyring).read(made, PATH).tenant == "acme"
    for other_maker in (TokenMaker("t" * 32, 60, keyring), TokenMaker(secret, 60, Keyring([]))):
        with pytest.raises(Problem):
            other_maker.read(made, PATH)
