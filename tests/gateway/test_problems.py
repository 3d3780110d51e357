"""Every error is a problem document without internal details."""

from __future__ import annotations

import logging
import re
from typing import Any

import httpx
import pytest

from tests.gateway.server import Serving
from tests.support import clause


def problem(answer: httpx.Response) -> dict[str, Any]:
    """The document, after a check of the members that all problems have."""
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["status"] == answer.status_code
    assert body["type"] == f"urn:jobwire:problem:{body['code']}"
    assert body["request_id"] == answer.headers["x-request-id"]
    assert body["title"]
    assert body["detail"]
    return body


@clause("O-9")
@pytest.mark.parametrize(
    "path", ["/nowhere", "/things", "/things/a/b", "/livez/", "/docs/nowhere", "/redoc"]
)
def test_an_unknown_path_is_404(open_gateway: Serving, path: str) -> None:
    answer = open_gateway.client.get(path)
    assert (answer.status_code, problem(answer)["code"]) == (404, "not_found")


@clause("O-9")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/livez", "GET, HEAD"),
        ("PUT", "/things/1", "DELETE, GET, HEAD"),
        ("GET", "/form", "POST"),
        ("DELETE", "/mixed", "GET, HEAD, POST"),
        ("OPTIONS", "/echo", "POST"),
        ("DELETE", "/teapot", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_405_with_the_allowed_ones(
    open_gateway: Serving, method: str, path: str, allowed: str
) -> None:
    answer = open_gateway.client.request(method, path)
    assert (answer.status_code, problem(answer)["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == allowed


@clause("O-9")
def test_one_path_may_have_hot_and_slow_methods(open_gateway: Serving) -> None:
    assert open_gateway.client.get("/mixed?limit=5").json() == {"limit": 5}
    assert open_gateway.client.post("/mixed", json={"a": 1}).json() == {"a": 1}


@clause("O-9")
@pytest.mark.parametrize("path", ["/broken"])
def test_an_internal_error_is_500_and_its_details_stay_in_the_log(
    open_gateway: Serving, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = open_gateway.client.get(path)
    assert (answer.status_code, problem(answer)["code"]) == (500, "internal")
    assert "hush" not in answer.text
    assert "hush: a secret of ours" in caplog.text


@clause("O-9")
@pytest.mark.parametrize("path", ["/refused"])
def test_a_jobwire_error_keeps_its_code_and_not_its_detail(
    open_gateway: Serving, path: str
) -> None:
    answer = open_gateway.client.get(path)
    body = problem(answer)
    assert (answer.status_code, body["code"], body["detail"]) == (
        422,
        "unknown_task",
        "no such task",
    )
    assert "hush" not in answer.text


@clause("O-9")
def test_retryable_problems_have_retry_after(open_gateway: Serving) -> None:
    away = open_gateway.client.get("/away")
    assert (away.status_code, problem(away)["code"]) == (503, "unavailable")
    assert int(away.headers["retry-after"]) >= 1
    full = open_gateway.client.get("/full")
    assert (full.status_code, problem(full)["code"]) == (429, "queue_full")
    assert full.headers["retry-after"] == "7"


@clause("O-9")
def test_a_problem_of_a_route_is_sent_with_its_headers(open_gateway: Serving) -> None:
    answer = open_gateway.client.get("/teapot")
    body = problem(answer)
    assert (answer.status_code, body["code"], body["detail"]) == (
        418,
        "teapot",
        "short and stout",
    )
    assert answer.headers["x-spout"] == "yes"


@clause("O-9")
def test_an_invalid_body_is_422_with_a_pointer_to_the_first_error(open_gateway: Serving) -> None:
    answer = open_gateway.client.post("/form", json={"count": "many"})
    body = problem(answer)
    assert (answer.status_code, body["code"]) == (422, "invalid_request")
    assert [error["pointer"] for error in body["errors"]] == ["/count"]
    query = open_gateway.client.get("/mixed?limit=x")
    assert problem(query)["errors"][0]["in"] == "query"


@clause("O-9")
def test_invalid_json_is_400(open_gateway: Serving) -> None:
    headers = {"content-type": "application/json"}
    answer = open_gateway.client.post("/form", content=b'{"name": ', headers=headers)
    assert (answer.status_code, problem(answer)["code"]) == (400, "invalid_json")


@clause("O-9")
@pytest.mark.parametrize("path", ["/echo", "/form"])
def test_another_media_type_is_415(open_gateway: Serving, path: str) -> None:
    answer = open_gateway.client.post(path, content=b"a=b", headers={"content-type": "text/plain"})
    assert (answer.status_code, problem(answer)["code"]) == (415, "unsupported_media_type")


@clause("O-9")
def test_a_response_that_fails_midway_is_aborted(open_gateway: Serving) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        open_gateway.client.get("/half")


@clause("O-9")
@pytest.mark.parametrize(
    ("path", "status"),
    [("/livez", 200), ("/mixed", 200), ("/nowhere", 404), ("/broken", 500)],
)
def test_every_answer_has_the_safety_headers(open_gateway: Serving, path: str, status: int) -> None:
    answer = open_gateway.client.get(path)
    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["date"]
    assert "server" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


@clause("O-9")
def test_a_request_id_is_kept_or_generated(open_gateway: Serving) -> None:
    kept = open_gateway.client.get("/livez", headers={"x-request-id": "my.id-1"})
    assert kept.headers["x-request-id"] == "my.id-1"
    made = {open_gateway.client.get("/livez").headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    assert all(re.fullmatch(r"[0-9a-f]{16,}", one) for one in made)


@clause("O-9")
@pytest.mark.parametrize("hostile", ["a b", "x" * 129, "<script>", "a,b"])
def test_a_hostile_request_id_is_replaced(open_gateway: Serving, hostile: str) -> None:
    answer = open_gateway.client.get("/livez", headers={"x-request-id": hostile})
    assert answer.headers["x-request-id"] != hostile


@clause("O-9")
def test_invalid_http_gets_a_problem_document(open_gateway: Serving) -> None:
    answer = open_gateway.raw(b"\x16\x03\x01 hello\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer
    assert b'"code":"bad_request"' in answer
    assert b"x-request-id: " in answer
