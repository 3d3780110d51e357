"""Authentication: keys, scopes, tenants; without keys, only this machine on loopback."""

from __future__ import annotations

import gzip
from collections.abc import Mapping

import httpx
import pytest

from jobwire.gateway.auth import new_key
from jobwire.gateway.feature import Feature
from tests.gateway.features import echo, test_feature
from tests.gateway.routes import route
from tests.gateway.server import Serving, bearer, build, status_of
from tests.support import clause


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


@clause("O-6")
@pytest.mark.parametrize("path", ["/things/acme.1", "/mixed", "/metrics"])
def test_without_a_key_it_is_401(keyed_gateway: Serving, path: str) -> None:
    answer = keyed_gateway.client.get(path)
    assert code(answer) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@clause("O-6")
@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        ("Bearer jw_wrong", "bad_key"),
        ("bearer jw_reader", "ok"),
        ("Bearer jw_readerx", "bad_key"),
        ("Bearer reader", "bad_key"),
        ("Bearer", "unauthorized"),
        ("Basic jw_reader", "unauthorized"),
        ("jw_reader", "unauthorized"),
        ("", "unauthorized"),
    ],
)
def test_a_wrong_key_is_401(keyed_gateway: Serving, authorization: str, expected: str) -> None:
    answer = keyed_gateway.client.get("/things/acme.1", headers={"authorization": authorization})
    if expected == "ok":
        assert answer.status_code == 200
    else:
        assert code(answer) == (401, expected)


@clause("O-6")
@pytest.mark.parametrize(
    ("name", "method", "path", "status"),
    [
        ("reader", "GET", "/things/acme.1", 200),
        ("reader", "POST", "/echo", 403),
        ("reader", "DELETE", "/things/acme.1", 403),
        ("reader", "POST", "/form", 403),
        ("writer", "POST", "/echo", 200),
        ("writer", "POST", "/form", 200),
        ("writer", "GET", "/things/acme.1", 403),
        ("writer", "GET", "/mixed", 403),
        ("boss", "GET", "/things/acme.1", 200),
        ("boss", "POST", "/echo", 200),
        ("boss", "DELETE", "/things/acme.1", 200),
        ("boss", "GET", "/metrics", 200),
        ("reader", "GET", "/metrics", 403),
    ],
)
def test_scopes_limit_each_key(
    keyed_gateway: Serving, name: str, method: str, path: str, status: int
) -> None:
    json = {"name": "x"} if method == "POST" else None
    answer = keyed_gateway.client.request(method, path, headers=bearer(name), json=json)
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["code"] == "forbidden"


@clause("O-6")
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/version", "/openapi.json"])
def test_public_routes_need_no_key(keyed_gateway: Serving, path: str) -> None:
    assert keyed_gateway.client.get(path).status_code == 200


@clause("O-6")
def test_another_tenants_things_are_not_found(keyed_gateway: Serving) -> None:
    own = keyed_gateway.client.get("/things/globex.1", headers=bearer("other"))
    foreign = keyed_gateway.client.get("/things/globex.1", headers=bearer("boss"))
    missing = keyed_gateway.client.get("/things/missing.1", headers=bearer("boss"))
    assert own.status_code == 200
    assert code(foreign) == code(missing) == (404, "not_found")


@clause("O-6")
def test_routes_get_the_authenticated_caller(keyed_gateway: Serving) -> None:
    hot = keyed_gateway.client.post("/echo", headers=bearer("writer"), json={})
    slow = keyed_gateway.client.post("/form", headers=bearer("other"), json={"name": "n"})
    assert hot.headers["x-principal"] == "acme"
    assert slow.json()["tenant"] == "globex"


@clause("O-6")
@pytest.mark.parametrize("path", [b"/echo", b"/form"])
def test_an_unauthorized_request_is_refused_before_its_body_is_read(
    keyed_gateway: Serving, path: bytes
) -> None:
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\nExpect: 100-continue\r\n\r\n"
    answer = keyed_gateway.raw(head % path)
    assert status_of(answer) == 401


@clause("O-6")
def test_with_keys_any_host_name_is_accepted(keyed_gateway: Serving) -> None:
    headers = {**bearer("reader"), "host": "jobs.example.com", "origin": "https://app.example.com"}
    assert keyed_gateway.client.get("/things/acme.1", headers=headers).status_code == 200


@clause("O-6")
def test_a_new_key_is_long_and_its_hash_is_not_the_key() -> None:
    key, hashed = new_key()
    assert key.startswith("jw_")
    assert len(key) > 40
    assert key not in hashed
    assert hashed.startswith("sha256:")


# On loopback without keys


@clause("O-6")
@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "localhost:9999"]
)
def test_without_keys_this_machine_has_all_scopes(open_gateway: Serving, host: str) -> None:
    answer = open_gateway.client.post("/echo", headers={"host": host}, json={})
    assert answer.status_code == 200
    assert answer.headers["x-principal"] == "default"


@clause("O-6")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8080",
        "10.0.0.1",
        "",
        "localhost:80@evil.example",
    ],
)
@pytest.mark.parametrize("path", ["/livez", "/mixed", "/nowhere"])
def test_a_foreign_host_is_refused(open_gateway: Serving, host: str, path: str) -> None:
    answer = open_gateway.client.get(path, headers={"host": host})
    assert code(answer) == (421, "foreign_host")


@clause("O-6")
def test_two_host_headers_are_refused(open_gateway: Serving) -> None:
    answer = open_gateway.raw(b"GET /livez HTTP/1.1\r\nHost: evil\r\nHost: localhost\r\n\r\n")
    assert status_of(answer) == 400


@clause("O-6")
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://127.0.0.1.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/echo", "/form"])
def test_a_cross_site_post_is_refused(
    open_gateway: Serving, path: str, headers: Mapping[str, str]
) -> None:
    answer = open_gateway.client.post(path, headers=headers, json={"name": "x"})
    assert code(answer) == (403, "cross_site")


@clause("O-6")
def test_a_page_of_the_same_origin_may_post(open_gateway: Serving) -> None:
    headers = {"origin": open_gateway.url, "sec-fetch-site": "same-origin"}
    assert open_gateway.client.post("/echo", headers=headers, json={}).status_code == 200


NAVIGATION = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@clause("O-6")
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
        {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        {"sec-fetch-mode": "cors", "sec-fetch-dest": "document"},
    ],
)
@pytest.mark.parametrize("path", ["/livez", "/mixed", "/things/default.1"])
def test_o06_a_get_from_a_page_of_another_site_is_refused(
    open_gateway: Serving, path: str, more: Mapping[str, str], site: str
) -> None:
    answer = open_gateway.client.get(path, headers={"sec-fetch-site": site, **more})
    assert code(answer) == (403, "cross_site")


@clause("O-6")
def test_a_link_from_another_site_may_be_followed(open_gateway: Serving) -> None:
    headers = {"sec-fetch-site": "cross-site", **NAVIGATION}
    assert open_gateway.client.get("/livez", headers=headers).is_success
    refused = open_gateway.client.post("/echo", headers=headers, json={"name": "x"})
    assert code(refused) == (403, "cross_site")


@clause("O-6")
@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_o06_a_get_of_our_own_page_is_answered(open_gateway: Serving, site: str) -> None:
    assert open_gateway.client.get("/livez", headers={"sec-fetch-site": site}).is_success


@clause("O-6")
@pytest.mark.parametrize(
    "header",
    [
        *("Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port"),
        *("X-Real-IP", "X-Client-IP", "X-Envoy-External-Address", "X-Azure-ClientIP"),
        *("CF-Connecting-IP", "Fastly-Client-IP", "Fly-Client-IP", "CDN-Loop"),
    ],
)
def test_a_forwarded_request_is_not_local(open_gateway: Serving, header: str) -> None:
    answer = open_gateway.client.get("/livez", headers={header: "10.0.0.1"})
    assert code(answer) == (403, "proxied")


# Every route has a scope


@clause("O-6")
def test_every_route_has_a_scope() -> None:
    inventory = build(test_feature()).inventory
    assert ("POST", "/v1/stream-tokens", "read") in inventory
    assert {scope for _, _, scope in inventory} <= {"public", "submit", "read", "admin"}
    public = {path for _, path, scope in inventory if scope == "public"}
    page = {path for path in public if path.startswith("/docs")}
    assert public - page == {"/livez", "/readyz", "/version", "/openapi.json"}


@clause("O-9")
def test_two_routes_of_one_name_are_refused() -> None:
    one = route("GET", "/a/{id}", "read", echo)
    with pytest.raises(ValueError, match="declared twice"):
        build(Feature(name="twice", routes=[one, route("GET", "/a/{name}", "admin", echo)]))


@clause("O-9")
def test_a_path_parameter_takes_any_text(open_gateway: Serving) -> None:
    for name in ("default.{}", "default.a b", "default.ü", "default.%"):
        answer = open_gateway.client.get(f"/things/{httpx.URL('http://x/' + name).path[1:]}")
        assert answer.status_code in (200, 404)
    assert open_gateway.client.get("/things/{}").status_code == 404


@clause("O-9")
def test_a_gzip_bomb_is_refused_without_decoding(open_gateway: Serving) -> None:
    bomb = gzip.compress(b"0" * 500_000)
    assert len(bomb) < 1000
    for path in ("/echo", "/form"):
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        answer = open_gateway.client.post(path, content=bomb, headers=headers)
        assert code(answer) == (415, "unsupported_encoding")
