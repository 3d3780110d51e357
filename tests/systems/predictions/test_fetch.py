"""Refusals and limits of the safe fetch (P-22)."""

from __future__ import annotations

import asyncio
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobwire.systems.predictions.fetch import (
    Expired,
    Fetched,
    Fetcher,
    Refused,
    decode_data_url,
    resolve,
)
from jobwire.systems.predictions.http_client import NoAnswer, exchange
from jobwire.systems.predictions.providers.outputs import news_of, output_urls
from tests.standins.server import Call, Request, Standin
from tests.support import clause
from tests.support.s3_proxy import Reply
from tests.support.tls import own_certificate
from tests.systems.predictions.site import png

PICTURE = png(1, 2, 3)
LIMIT = 10_000


class Files(Standin):
    """Answers by path; counts the requests."""

    def call(self, request: Request) -> Call:
        name = request.path.strip("/")
        return name, lambda: self._answer(name, request)

    def _answer(self, name: str, request: Request) -> Reply:
        assert "authorization" not in request.headers
        assert "cookie" not in request.headers
        word, _, rest = name.partition("-")
        match word:
            case "picture":
                return Reply(200, (("Content-Type", "text/html"),), PICTURE)
            case "page":
                return Reply(200, (("Content-Type", "image/png"),), b"<html>not a picture</html>")
            case "large":
                return Reply(200, (), PICTURE + b"\0" * LIMIT)
            case "hops":
                left = int(rest)
                where = "/picture" if left == 1 else f"/hops-{left - 1}"
                return Reply(302, (("Location", where),))
            case "inward":
                return Reply(302, (("Location", "http://10.0.0.1/x"),))
            case "status":
                return Reply(int(rest))
            case _:
                return Reply(404)


@pytest.fixture
def files() -> Iterator[Files]:
    with Files() as started:
        yield started


@pytest.fixture
def local() -> Fetcher:
    return Fetcher(max_bytes=LIMIT, timeout_s=30, allow_loopback=True)


BAD_ADDRESSES = [
    *("127.0.0.1", "127.8.9.1", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.88.99.1"),
    *("224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1"),
    *("::", "::1", "fe80::1", "fd00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
    *("64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:a00:1::", "::7f00:1"),
    *("192.0.0.8", "fec0::1", "3fff::1", "5f00::1", "64:ff9b::a9fe:a9fe"),
    *("::a00:1", "2001:0:4136:e378:8000:63bf:f5ff:fffe", "2001:db8::1", "fe80::1%eth0"),
]


@clause("P-22")
@pytest.mark.parametrize("address", BAD_ADDRESSES)
async def test_p22_private_addresses_are_not_connected_to(address: str) -> None:
    fetcher = Fetcher(max_bytes=LIMIT, resolve=lambda _host, _port: [address])
    answer = await fetcher.fetch("https://pictures.example.com/x.png")
    assert answer == Refused("the host has an address that is not public")


@clause("P-22")
async def test_p22_one_bad_address_among_good_ones_is_enough() -> None:
    fetcher = Fetcher(max_bytes=LIMIT, resolve=lambda _host, _port: ["1.1.1.1", "10.0.0.1"])
    assert isinstance(await fetcher.fetch("https://pictures.example.com/x.png"), Refused)


@clause("P-22")
@pytest.mark.parametrize(
    "host",
    ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::1]", "[::ffff:7f00:1]", "localhost"],
)
async def test_p22_other_spellings_of_loopback_are_loopback(host: str) -> None:
    assert await Fetcher(max_bytes=LIMIT).fetch(f"https://{host}/x") == Refused(
        "the host has an address that is not public"
    )


@clause("P-22")
@pytest.mark.parametrize(
    "url",
    [
        *("http://1.1.1.1/x", "ftp://1.1.1.1/x", "file:///etc/passwd", "gopher://1.1.1.1", "x"),
        *("//1.1.1.1/x", "https://", "https://user:secret@1.1.1.1/x", "https://1.1.1.1:8080/x"),
        *("https://1.1.1.1/a\r\nHost: b", "https://[::1", "https://1.1.1.1:99999/", ""),
        "https://user@1.1.1.1/",
    ],
)
async def test_p22_only_plain_https_urls(url: str) -> None:
    assert isinstance(await Fetcher(max_bytes=LIMIT).fetch(url), Refused)


@clause("P-22")
async def test_p22_the_name_is_resolved_once_and_the_checked_address_is_used(
    files: Files,
) -> None:
    """A name with another address after the check (DNS rebinding) has no effect."""
    port, asked = int(files.url.rpartition(":")[2]), list[str]()

    def once(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    fetcher = Fetcher(max_bytes=LIMIT, timeout_s=30, allow_loopback=True, resolve=once)
    answer = await fetcher.fetch(f"http://rebinding.example.com:{port}/picture")
    assert answer == Fetched(PICTURE, "image/png")
    assert asked == ["rebinding.example.com"]


@clause("P-22")
async def test_p22_redirects_are_checked_and_counted(files: Files, local: Fetcher) -> None:
    assert await local.fetch(f"{files.url}/hops-3") == Fetched(PICTURE, "image/png")
    assert await local.fetch(f"{files.url}/hops-4") == Refused("more than 3 redirects")
    assert isinstance(await local.fetch(f"{files.url}/inward"), Refused)


@clause("P-22")
async def test_p22_the_type_is_the_content_s_and_the_size_is_counted(
    files: Files, local: Fetcher
) -> None:
    assert await local.fetch(f"{files.url}/picture") == Fetched(PICTURE, "image/png")
    assert await local.fetch(f"{files.url}/page") == Refused("the output is not a picture")
    assert await local.fetch(f"{files.url}/large") == Refused(
        "the output has more than 10000 bytes"
    )
    assert await local.fetch(f"{files.url}/gone") == Expired()
    assert isinstance(await local.fetch(f"{files.url}/status-503"), NoAnswer)
    # Loopback only by setting.
    assert isinstance(await Fetcher(max_bytes=LIMIT).fetch(f"{files.url}/picture"), Refused)


@clause("P-22")
async def test_p22_the_answer_of_an_api_is_read_up_to_its_limit(files: Files) -> None:
    answer = await asyncio.to_thread(
        exchange, "GET", f"{files.url}/large", timeout_s=30, max_bytes=LIMIT
    )
    assert isinstance(answer, NoAnswer)
    assert answer.too_large


@clause("P-22")
async def test_p22_tls_is_checked_against_the_name_of_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes to the checked address; the certificate must be that of the name."""
    certificate = own_certificate()
    refused = NoAnswer("SSLCertVerificationError", not_done=True)
    with Files(certificate.server_context()) as files:
        port = files.url.rpartition(":")[2]
        fetcher = Fetcher(
            max_bytes=LIMIT,
            timeout_s=30,
            allow_loopback=True,
            resolve=lambda _host, _port: ["127.0.0.1"],
        )
        assert await fetcher.fetch(f"https://127.0.0.1:{port}/picture") == refused
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.write_to(tmp_path)))
        answer = await fetcher.fetch(f"https://127.0.0.1:{port}/picture")
        assert answer == Fetched(PICTURE, "image/png")
        assert await fetcher.fetch(f"https://other.example.com:{port}/picture") == refused


@clause("P-22")
@pytest.mark.parametrize("drip", [b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b""])
async def test_p22_a_slow_server_is_disconnected_at_the_time_limit(drip: bytes) -> None:
    """Each byte resets a socket's own timeout; the whole exchange has a limit of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        taken, _ = listener.accept()
        with taken:
            taken.sendall(drip)
            while not over.wait(0.05):
                try:
                    taken.sendall(b"x" if drip else b"")
                except OSError:
                    return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    fetcher = Fetcher(max_bytes=LIMIT, timeout_s=0.5, allow_loopback=True)
    answer = await fetcher.fetch(f"http://127.0.0.1:{listener.getsockname()[1]}/x")
    over.set()
    thread.join(30)
    listener.close()
    # Nine bytes of the second form arrive in time: they are not a picture.
    assert isinstance(answer, NoAnswer | Refused)


@clause("P-21", "P-22")
def test_p21_data_urls_are_pictures_within_the_limit() -> None:
    def url(body: bytes, kind: str = "image/png") -> str:
        return f"data:{kind};base64,{b64encode(body).decode()}"

    assert decode_data_url(url(PICTURE), LIMIT) == Fetched(PICTURE, "image/png")
    assert decode_data_url(url(PICTURE, "text/html"), LIMIT) == Fetched(PICTURE, "image/png")
    for bad in (
        url(b"<svg/>"),
        url(PICTURE + b"\0" * LIMIT),
        "data:image/png,plain",
        "data:image/png;base64,%%%",
        "data:",
    ):
        assert isinstance(decode_data_url(bad, LIMIT), Refused)


@clause("P-21")
@pytest.mark.parametrize(
    ("output", "urls"),
    [
        ("https://x/a", ("https://x/a",)),
        (["https://x/a", "https://x/b", "https://x/a"], ("https://x/a", "https://x/b")),
        ({"image": "https://x/a", "seed": 7}, ("https://x/a",)),
        ({"images": [{"url": "https://x/a"}]}, ("https://x/a",)),
        ("data:image/png;base64,AAAA", ("data:image/png;base64,AAAA",)),
        ([f"https://x/{n}" for n in range(30)], tuple(f"https://x/{n}" for n in range(10))),
        ("just words", ()),
        (None, ()),
        (7, ()),
        ("https://x/" + "a" * 5000, ()),
    ],
)
def test_p21_an_output_may_have_many_forms(output: object, urls: tuple[str, ...]) -> None:
    assert output_urls(output) == urls


@clause("P-15", "P-20")
@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("starting", None),
        ("processing", None),
        ("novel", None),
        (None, None),
        ("failed", "provider_failed"),
        ("canceled", "canceled"),
        ("aborted", "timeout"),
    ],
)
def test_p20_an_unknown_status_is_not_an_end(status: object, code: str | None) -> None:
    news = news_of({"id": "abc", "status": status})
    assert news is not None
    assert (news.outcome.code if news.outcome else None) == code


def test_the_system_s_resolver_gives_addresses() -> None:
    assert "127.0.0.1" in resolve("127.0.0.1", 80)
