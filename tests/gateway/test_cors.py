"""Pages of other origins: configured ones may call chosen routes, no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from jobwire.api.problems import UNAUTHORIZED
from jobwire.gateway.access import SelfAuthenticated
from jobwire.gateway.auth import Principal
from jobwire.gateway.feature import Feature
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.settings import GatewaySettings
from tests.gateway.routes import route
from tests.gateway.server import Serving
from tests.support import clause
from tests.support.browser import Browser

PAGE: Final = "https://app.example.com"
TOKEN: Final = {"authorization": "Bearer good"}


async def check_token(request: HttpRequest) -> Principal:
    if request.headers.get(b"authorization") != b"Bearer good":
        raise Problem(UNAUTHORIZED)
    return Principal("acme", frozenset(), "token")


async def upload(request: HttpRequest) -> Reply:
    return Reply(b"%d" % len(await request.body(None)))


async def page(_: HttpRequest) -> Reply:
    policy = (b"content-security-policy", b"default-src 'none'; connect-src *; img-src data:")
    return Reply(
        b"<!doctype html><title>A page</title>", headers=(policy,), media_type=b"text/html"
    )


def feature() -> Feature:
    bearer = {"type": "http", "scheme": "bearer"}
    token = SelfAuthenticated(check_token, "uploadToken", bearer, (UNAUTHORIZED,))
    binary = ("image/jpeg", "image/png")
    return Feature(
        name="uploads",
        routes=[
            route("PUT", "/uploads/{id}", token, upload, binary=binary, cors=True),
            route("DELETE", "/uploads/{id}", token, upload, binary=binary),
            route("GET", "/page", "public", page),
        ],
    )


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    with Serving(GatewaySettings(cors_origins=(PAGE,)), feature()) as served:
        yield served


def asking(origin: str, method: str = "PUT") -> dict[str, str]:
    return {"origin": origin, "access-control-request-method": method, "host": "uploads.example"}


@clause("O-6")
def test_o06_a_configured_origin_passes_the_preflight_and_the_call(served: Serving) -> None:
    asked = served.client.options("/uploads/1", headers=asking(PAGE))
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-origin"] == PAGE
    assert asked.headers["access-control-allow-methods"] == "PUT"
    assert "authorization, content-type" in asked.headers["access-control-allow-headers"]
    assert "content-length" not in asked.headers
    headers = {"origin": PAGE, "host": "uploads.example"}
    taken = served.client.put("/uploads/1", content=b"123", headers={**headers, **TOKEN})
    assert (taken.status_code, taken.text) == (200, "3")
    refused = served.client.put("/uploads/1", content=b"123", headers=headers)
    assert refused.status_code == 401
    for answer in (taken, refused):
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["vary"] == "origin"
        assert "access-control-allow-credentials" not in answer.headers


@clause("O-6")
@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "https://app.example.com:444", f"{PAGE}.evil", ""]
)
def test_o06_another_origin_is_not_allowed(served: Serving, origin: str) -> None:
    asked = served.client.options("/uploads/1", headers=asking(origin))
    called = served.client.put("/uploads/1", headers={"origin": origin, **TOKEN})
    for answer in (asked, called):
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["vary"] == "origin"


@clause("O-6")
def test_o06_other_routes_allow_no_other_origin(served: Serving) -> None:
    headers = {**asking(PAGE, "DELETE"), "host": "localhost"}
    assert served.client.options("/uploads/1", headers=headers).status_code != 204
    for method, path in (("DELETE", "/uploads/1"), ("GET", "/livez"), ("GET", "/nowhere")):
        answer = served.client.request(method, path, headers={"origin": PAGE, **TOKEN})
        assert "access-control-allow-origin" not in answer.headers
    plain = served.client.options("/uploads/1")
    assert (plain.status_code, plain.headers["allow"]) == (405, "DELETE, PUT")


@clause("O-6")
def test_o06_a_browser_lets_only_the_configured_page_read(browser: Browser) -> None:
    with Serving(GatewaySettings(), feature()) as allowed, Serving(None, feature()) as foreign:
        settings = GatewaySettings(cors_origins=(allowed.url,))
        with Serving(settings, feature()) as uploads, browser.page(may_complain=True) as tab:
            url = f"{uploads.url}/uploads/1"
            call = f"""Promise.all(["good", "bad"].map((token) => fetch("{url}", {{
              method: "PUT",
              headers: {{ authorization: `Bearer ${{token}}`, "content-type": "image/jpeg" }},
              body: "123",
            }}).then((answer) => answer.status, () => "blocked")))"""
            tab.open(f"{allowed.url}/page")
            assert tab.run(call) == [200, 401]
            tab.open(f"{foreign.url}/page")
            assert tab.run(call) == ["blocked", "blocked"]


@clause("O-6")
@pytest.mark.parametrize(
    "origin", ["*", "https://app.example.com/", "app.example.com", "https://a.example/x", "null"]
)
def test_o06_an_invalid_origin_is_refused_at_start(origin: str) -> None:
    ((name, fault),) = GatewaySettings(cors_origins=(origin,)).check()
    assert name == "cors_origins"
    assert "https://app.example.com" in fault


@clause("O-9")
def test_o09_a_binary_body_is_documented_with_its_media_types(served: Serving) -> None:
    operation = served.client.get("/openapi.json").json()["paths"]["/uploads/{id}"]["put"]
    assert operation["requestBody"]["required"]
    assert operation["requestBody"]["content"] == {"image/jpeg": {}, "image/png": {}}
    assert {"401", "408", "413", "415"} <= set(operation["responses"])
    assert "invalid_json" not in str(operation["responses"])
