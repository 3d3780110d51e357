"""Addresses of pictures that a model's server will fetch."""

from __future__ import annotations

import msgspec
import pytest

from jobwire.handlers.llm.payloads import ChatPayload
from tests.support import clause


def chat(url: str) -> ChatPayload:
    part = {"type": "image_url", "image_url": {"url": url}}
    return msgspec.convert({"messages": [{"role": "user", "content": [part]}]}, ChatPayload)


@clause("O-15")
@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.", "0"),
        *("169.254.169.254", "10.0.0.1", "192.168.1.1", "100.64.0.1", "168.63.129.16"),
        *("[::1]", "[::ffff:7f00:1]", "[fd00::1]", "[fec0::1]", "[64:ff9b::7f00:1]", "[::1%25lo]"),
        *("localhost", "LOCALHOST.", "db.localhost", "metadata.google.internal", "nas.local", "db"),
        *("１２７.0.0.1", "127。0。0。1", "127.0.0\u00ad.1", "metadata.google.internal\u3002"),
        *("127%2e0.0.1", "nas.loca%6c", "[::ffff:0:7f00:1]", "[5f00::1]", "a." * 200 + "example"),
        *("user:secret@example.com", "example.com\\@127.0.0.1", "", "[::1"),
    ],
)
def test_o15_a_picture_inside_the_network_is_refused(host: str) -> None:
    """The server of the model would fetch it: from its own network."""
    for scheme in ("http", "https"):
        with pytest.raises(msgspec.ValidationError, match="public host"):
            chat(f"{scheme}://{host}/x.png")


@clause("O-15")
@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.com/x", "x", "//example.com"])
def test_o15_a_picture_by_another_scheme_is_refused(url: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="public host"):
        chat(url)


@pytest.mark.parametrize(
    "url",
    [
        *("data:image/png;base64,AAAA", "https://example.com/x.png?a=b", "http://1.1.1.1:8080/x"),
        *("https://[2606:4700::1111]/x", "https://münchen.example/x", "https://7f.example.com/x"),
    ],
)
def test_a_public_picture_is_accepted(url: str) -> None:
    chat(url)
