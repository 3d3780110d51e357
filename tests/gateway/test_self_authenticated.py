"""Routes with their own proof: any host name, no API key, and never without a verifier."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import httpx
import msgspec
import pytest

from jobwire.api.operation import Operation, Proof
from jobwire.api.problems import ProblemKind
from jobwire.gateway.access import SelfAuthenticated
from jobwire.gateway.app import ExposedWithoutKeys
from jobwire.gateway.auth import Principal
from jobwire.gateway.feature import Feature
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import serve
from jobwire.gateway.settings import GatewaySettings
from tests.gateway.features import test_feature
from tests.gateway.routes import route
from tests.gateway.server import Serving, key, status_of
from tests.support import clause

SECRET: Final = b"a secret of the sender"
BAD_SIGNATURE: Final = ProblemKind("bad_signature", 401, "the signature does not fit the body")
BAD_SECRET: Final = ProblemKind("bad_secret", 401, "the secret is wrong")
SENDER: Final = Principal("acme", frozenset(), "sender")
BODY: Final = b'{"name": "photo"}'
MAX_BODY: Final = 1000


def signature(body: bytes) -> str:
    return hmac.digest(SECRET, body, "sha256").hex()


async def check_signature(request: HttpRequest) -> Principal:
    """As for webhooks: a signature of the whole body."""
    given = request.headers.get(b"x-signature", b"").decode("latin-1")
    if not hmac.compare_digest(given.encode(), signature(await request.buffered_body()).encode()):
        raise Problem(BAD_SIGNATURE)
    return SENDER


async def check_secret(request: HttpRequest) -> Principal:
    """As for bots: a secret in a header."""
    if not hmac.compare_digest(request.headers.get(b"x-secret", b""), SECRET):
        raise Problem(BAD_SECRET)
    return SENDER


async def forgetful(_: HttpRequest) -> Principal:
    return cast("Principal", None)


SIGNED: Final = SelfAuthenticated(
    check_signature,
    "webhookSignature",
    {"type": "apiKey", "in": "header", "name": "X-Signature"},
    (BAD_SIGNATURE,),
)
KNOWS_SECRET: Final = SelfAuthenticated(
    check_secret,
    "botSecret",
    {"type": "apiKey", "in": "header", "name": "X-Secret"},
    (BAD_SECRET,),
)


class Notice(msgspec.Struct):
    name: str
    tenant: str = ""


async def hot_hook(request: HttpRequest) -> Reply:
    return Reply(await request.body(), headers=((b"x-tenant", request.principal.tenant.encode()),))


def hooks() -> Feature:
    typed = Operation(
        "POST",
        "/hooks/typed",
        Proof(SIGNED.scheme, SIGNED.security, SIGNED.problems),
        "a hook",
        tag="hooks",
        body=Notice,
        answer=Notice,
        max_body=MAX_BODY,
    )

    async def typed_hook(request: HttpRequest, body: Notice) -> Notice:
        return Notice(body.name, request.principal.tenant)

    nothing = SelfAuthenticated(forgetful, "none", {"type": "http", "scheme": "bearer"})
    return Feature(
        name="hooks",
        routes=[
            serve(typed, typed_hook, verify=check_signature),
            route("POST", "/hooks/hot", SIGNED, hot_hook, takes=dict, max_body=MAX_BODY),
            route("POST", "/hooks/bot", KNOWS_SECRET, hot_hook, takes=dict),
            route("POST", "/hooks/forgetful", nothing, hot_hook, takes=dict),
        ],
    )


SETTINGS: Final = {
    "open": GatewaySettings(),
    "keyed": GatewaySettings(keys=(key("boss", "admin"),)),
    "exposed": GatewaySettings(host="0.0.0.0"),
}


@pytest.fixture(scope="module", params=list(SETTINGS))
def served(request: pytest.FixtureRequest) -> Iterator[Serving]:
    """Without keys on loopback; with keys; without keys on any address."""
    with Serving(SETTINGS[request.param], hooks()) as served:
        yield served


FOREIGN: Final = {
    "host": "hooks.tunnel.example",
    "origin": "https://elsewhere.example",
    "sec-fetch-site": "cross-site",
    "x-forwarded-for": "203.0.113.9",
    "content-type": "application/json",
}


def post(
    served: Serving, path: str, headers: Mapping[str, str], body: bytes = BODY
) -> httpx.Response:
    return served.client.post(path, content=body, headers={**FOREIGN, **headers})


@clause("O-6")
@pytest.mark.parametrize("path", ["/hooks/hot", "/hooks/typed"])
def test_o06_a_signed_request_passes_by_any_host_without_a_key(served: Serving, path: str) -> None:
    answer = post(served, path, {"x-signature": signature(BODY)})
    assert answer.status_code == 200, answer.text
    assert answer.json()["name"] == "photo"
    assert (answer.headers.get("x-tenant") or answer.json()["tenant"]) == "acme"


@clause("O-6")
@pytest.mark.parametrize("path", ["/hooks/hot", "/hooks/typed"])
@pytest.mark.parametrize(
    "headers",
    [{}, {"x-signature": ""}, {"x-signature": signature(b"another body")}, {"x-secret": "guess"}],
    ids=["none", "empty", "of-another-body", "of-another-kind"],
)
def test_o06_a_request_without_its_proof_is_refused(
    served: Serving, path: str, headers: dict[str, str]
) -> None:
    """An API key with all scopes does not replace the proof."""
    answer = post(served, path, {"authorization": "Bearer jw_boss", **headers})
    assert (answer.status_code, answer.json()["code"]) == (401, "bad_signature")


@clause("O-6")
def test_o06_a_secret_in_a_header_is_checked(served: Serving) -> None:
    assert post(served, "/hooks/bot", {"x-secret": SECRET.decode()}).status_code == 200
    refused = post(served, "/hooks/bot", {"x-secret": SECRET.decode() + "x"})
    assert (refused.status_code, refused.json()["code"]) == (401, "bad_secret")


@clause("O-6")
@pytest.mark.parametrize("path", ["/hooks/hot", "/hooks/typed"])
def test_o06_a_verifier_never_reads_more_than_the_limit(served: Serving, path: str) -> None:
    body = b" " * (MAX_BODY + 1)
    answer = post(served, path, {"x-signature": signature(body)}, body)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")

    def chunked() -> Iterator[bytes]:
        yield body

    answer = served.client.post(path, content=chunked(), headers=FOREIGN)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@clause("O-6")
def test_o06_a_verifier_that_returns_nothing_is_an_error(served: Serving) -> None:
    assert post(served, "/hooks/forgetful", {}).json()["code"] == "internal"


@clause("O-6")
def test_o06_the_proof_of_one_route_opens_no_other(served: Serving) -> None:
    headers = {"x-signature": signature(b""), "x-secret": SECRET.decode(), "host": "hooks.example"}
    answer = served.client.get("/metrics", headers=headers)
    assert answer.status_code in (401, 421)


@clause("O-6")
def test_o06_without_keys_on_any_address_only_public_routes_are_open() -> None:
    """A caller elsewhere can send any Host header: it must not count as this machine."""
    with Serving(SETTINGS["exposed"], hooks()) as served:
        for host in ("localhost", "uploads.example"):
            answer = served.client.get("/metrics", headers={"host": host})
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
            assert served.client.get("/livez", headers={"host": host}).status_code == 200
        answer = served.client.post("/v1/stream-tokens", json={"path": "/x"})
        assert answer.status_code == 401
        assert status_of(served.raw(b"GET /livez HTTP/1.0\r\n\r\n")) == 200


@clause("O-6")
def test_o06_without_keys_on_any_address_a_route_with_a_scope_is_refused() -> None:
    with pytest.raises(ExposedWithoutKeys, match=r"needs the scope 'submit'.*jobwire key"):
        Serving(SETTINGS["exposed"], hooks(), test_feature())
    typed = Feature(name="typed", routes=[route("GET", "/typed", "read", hot_hook)])
    with pytest.raises(ExposedWithoutKeys, match=r"/typed needs the scope 'read'"):
        Serving(SETTINGS["exposed"], typed)


@clause("O-6")
@pytest.mark.parametrize("access", ["self", None, "", "webhook", check_signature])
def test_o06_a_route_without_scope_or_verifier_cannot_be_declared(access: Any) -> None:
    with pytest.raises(TypeError, match="neither a scope"):
        Operation("POST", "/hook", access, "x", tag="test")


@clause("O-6")
def test_o06_a_self_authenticated_access_needs_its_verifier() -> None:
    with pytest.raises(TypeError):
        cast("Any", SelfAuthenticated)(scheme="signature", security={})
    with pytest.raises(TypeError, match="needs a verifier"):
        SelfAuthenticated(cast("Any", None), "signature", {})


@clause("O-9")
def test_o09_the_document_names_the_proof(served: Serving) -> None:
    headers = {"authorization": "Bearer jw_boss"}
    document = served.client.get("/openapi.json", headers=headers).json()
    for path in ("/hooks/hot", "/hooks/typed"):
        operation = document["paths"][path]["post"]
        assert operation["security"] == [{"webhookSignature": []}]
        assert operation["x-jobwire-scope"] == "self"
        assert "bad_signature" in operation["responses"]["401"]["description"]
        assert "foreign_host" not in str(operation["responses"])
    scheme = document["components"]["securitySchemes"]["webhookSignature"]
    assert scheme == {"type": "apiKey", "in": "header", "name": "X-Signature"}
