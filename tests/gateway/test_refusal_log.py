"""O-6: requests that are refused without a proof leave a line in the log, at most one a second."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from jobwire.gateway import refusal_log
from jobwire.gateway.feature import Feature
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.settings import GatewaySettings
from tests.gateway.features import test_feature
from tests.gateway.routes import route
from tests.gateway.server import Serving, bearer, key
from tests.gateway.test_self_authenticated import SIGNED
from tests.support import clause, wait_until_sync


async def nothing(_: HttpRequest) -> Reply:
    return Reply()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    monkeypatch.setattr(refusal_log, "_INTERVAL_S", 0.2)
    keys = (key("reader", "read"),)
    signed = Feature(name="signed", routes=[route("POST", "/signed", SIGNED, nothing)])
    with Serving(GatewaySettings(keys=keys), test_feature(), signed) as served:
        yield served


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "jobwire.gateway.refusals"]


def counted(caplog: pytest.LogCaptureFixture) -> int:
    return sum(int(line.partition("requests=")[2].split()[0]) for line in lines(caplog))


@clause("O-6")
def test_o06_every_refusal_without_a_proof_is_counted_in_the_log(
    served: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(30):
        assert served.client.get("/things/a").status_code == 401
        assert served.client.get("/things/a", headers=bearer("nobody")).status_code == 401
        assert served.client.post("/signed", content=b"x").status_code == 401
    wait_until_sync(lambda: counted(caplog) == 90, "all refusals in the log")
    assert len(lines(caplog)) < 90, "a line counts several"
    first = lines(caplog)[0]
    assert first.startswith("requests refused kind=unauthorized requests=1 route=GET /things/{id}")
    assert "client=127.0.0.1" in first
    kinds = {line.partition("kind=")[2].split()[0] for line in lines(caplog)}
    assert kinds == {"unauthorized", "bad_key", "bad_signature"}


@clause("O-6")
def test_o06_other_answers_leave_no_line(served: Serving, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    reader = bearer("reader")
    assert served.client.get("/things/a", headers=reader).status_code == 404
    assert served.client.post("/echo", headers=reader, json={}).status_code == 403
    assert served.client.get("/nowhere").status_code == 404
    assert served.client.get("/livez").status_code == 200
    assert not lines(caplog)
