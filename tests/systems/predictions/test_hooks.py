"""O-15: what a gateway reads of a webhook whose sender has not proved anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import pytest

from jobwire.gateway.feature import Feature
from jobwire.gateway.settings import GatewaySettings
from jobwire.objects import BucketConfig
from jobwire.systems.predictions.http.hooks import hook_routes
from tests.gateway.server import Serving, read_answer, status_of
from tests.standins.replicate import signed
from tests.support import clause
from tests.systems.predictions.site import Addresses, build_flow

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    bucket = BucketConfig(bucket="none", endpoint=NOWHERE, access_key="none", secret_key="none")
    flow = build_flow(Addresses(asdict(bucket), NOWHERE, NOWHERE, NOWHERE))
    hooks = Feature(name="hooks", routes=hook_routes(flow, None, ""))
    with Serving(GatewaySettings(), hooks) as started:
        yield started


def head_only(served: Serving, path: str, length: int, **headers: str) -> int:
    """The status of the answer to a head whose body is not sent."""
    lines = [f"POST {path} HTTP/1.1", "Host: bot.example.com", f"Content-Length: {length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    with served.open_socket() as peer:
        peer.settimeout(30)
        peer.sendall("\r\n".join([*lines, "", ""]).encode())
        return status_of(read_answer(peer))


@clause("O-15", "P-14")
@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_o15_a_webhook_without_a_signature_is_refused_unread(served: Serving, missing: str) -> None:
    """Regression: three hundred connections without any key took a gigabyte."""
    headers = {
        name.replace("-", "_"): value for name, value in signed(b"", 0).items() if name != missing
    }
    assert head_only(served, "/hooks/replicate/x", 200_000, **headers) == 401


@clause("O-15", "P-14")
def test_o15_a_webhook_of_another_provider_is_refused_unread(served: Serving) -> None:
    assert head_only(served, "/hooks/cog/x?token=y", 200_000) == 404


@clause("O-15", "P-14")
def test_o15_little_is_read_before_a_signature_is_checked(served: Serving) -> None:
    headers = {name.replace("-", "_"): value for name, value in signed(b"", 0).items()}
    assert head_only(served, "/hooks/replicate/x", (256 << 10) + 1, **headers) == 413
