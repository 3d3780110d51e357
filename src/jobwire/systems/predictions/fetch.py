"""Download a provider's output, from checked addresses only, within bounds (P-22).

An output is a URL in a JSON body; a model may echo what a user wrote. So every address that the
host resolves to is checked, the connection goes to a checked one, and each redirect is checked
again. No credentials, cookies or proxies are used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Final
from urllib.parse import urljoin, urlsplit

from jobwire.net import is_public
from jobwire.systems.predictions.byte_budget import SMALL, ByteBudget, InHand
from jobwire.systems.predictions.http_client import NoAnswer, NoRoom, download
from jobwire.systems.predictions.images import is_data_url, sniff

Resolve = Callable[[str, int], Sequence[str]]

_MAX_REDIRECTS: Final = 3
_PIECE: Final = 64 * 1024  # characters of base64: a multiple of four
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_GONE: Final = frozenset({401, 403, 404, 410})


@dataclass(frozen=True, slots=True)
class Fetched:
    """A picture, in a buffer of its own."""

    body: bytes | memoryview
    mime: str


@dataclass(frozen=True, slots=True)
class Expired:
    """The provider no longer has it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """We do not fetch this, now or later; the reason goes to the log only."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unfit:
    """It is there for everyone who has its address, and no picture that we can place in a chat."""

    reason: str


FetchResult = Fetched | Expired | Refused | Unfit | NoAnswer


def resolve(host: str, port: int) -> Sequence[str]:
    """Every address of a host, by the system's resolver."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(each[4][0]) for each in found]


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Fetches pictures; `allow_loopback` is for a provider on this machine."""

    max_bytes: int
    timeout_s: float = 60.0
    allow_loopback: bool = False
    resolve: Resolve = resolve

    async def fetch(self, url: str, hand: InHand | None = None) -> FetchResult:
        """Fetch one picture by an http(s) or data URL, within what `hand` can reserve."""
        hand = hand or ByteBudget(self.max_bytes).in_hand()
        if is_data_url(url):
            await hand.reserve(min(len(url) // 4 * 3, self.max_bytes))
            return decode_data_url(url, self.max_bytes)
        await hand.reserve(SMALL)
        answer = await asyncio.to_thread(self._fetch, url, hand)
        if isinstance(answer, NoRoom):
            await hand.reserve(answer.size)
            answer = await asyncio.to_thread(self._fetch, url, hand)
        if isinstance(answer, NoRoom):  # it has grown since
            return NoAnswer("the output's size is not what it was")
        hand.shrink(len(answer.body) if isinstance(answer, Fetched) else 0)
        return answer

    def _fetch(self, url: str, hand: InHand) -> FetchResult | NoRoom:
        for _ in range(_MAX_REDIRECTS + 1):
            target = self._check(url)
            if not isinstance(target, str):
                return target
            answer = download(
                url,
                timeout_s=self.timeout_s,
                max_bytes=self.max_bytes,
                grow=hand.grow,
                address=target,
            )
            if isinstance(answer, NoRoom):
                return answer
            if isinstance(answer, NoAnswer):
                return (
                    self._unfit(target, _too_large(self.max_bytes)) if answer.too_large else answer
                )
            if answer.status in _REDIRECTS:
                url = urljoin(url, answer.headers.get("location", ""))
                continue
            if answer.status in _GONE:
                return Expired()
            if answer.status != 200:
                return NoAnswer(f"the output's host answered {answer.status}")
            return self._unfit(target, _picture(answer.body))
        return Refused(f"more than {_MAX_REDIRECTS} redirects")

    def _unfit(self, address: str, found: Fetched | Refused) -> Fetched | Refused | Unfit:
        """A user can open a public address, and none of this machine."""
        if isinstance(found, Refused) and is_public(ipaddress.ip_address(address)):
            return Unfit(found.reason)
        return found

    def _check(self, url: str) -> str | Refused | NoAnswer:
        """The address to connect to, once all of the host's addresses have been checked."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return Refused("the URL cannot be read")
        if parts.scheme not in ("http", "https") or not host:
            return Refused("the URL is not https")
        if parts.username is not None or parts.password is not None:
            return Refused("the URL contains credentials")
        if any(ord(each) <= 32 or ord(each) == 127 for each in url):
            return Refused("the URL contains control characters")
        try:
            addresses = self.resolve(host, port or 443)
        except (OSError, UnicodeError) as error:
            return NoAnswer(f"the host cannot be resolved ({type(error).__name__})")
        try:
            parsed = [ipaddress.ip_address(each.partition("%")[0]) for each in addresses]
        except ValueError:
            return Refused("the host resolves to no address")
        if not parsed:
            return NoAnswer("the host has no address")
        if self.allow_loopback and all(each.is_loopback for each in parsed):
            return str(parsed[0])
        if parts.scheme != "https" or port not in (None, 443):
            return Refused("the URL is not https on port 443")
        if not all(is_public(each) for each in parsed):
            return Refused("the host has an address that is not public")
        return str(parsed[0])


def decode_data_url(url: str, max_bytes: int) -> Fetched | Refused:
    """The picture in a base64 data URL; its length is checked before it is decoded."""
    comma = url.find(",")
    if comma < 0 or not url[:comma].lower().endswith(";base64"):
        return Refused("the data URL is not base64")
    start, size = comma + 1, len(url) - comma - 1
    if size > (max_bytes + 2) // 3 * 4 + 4:
        return _too_large(max_bytes)
    buffer, end = memoryview(mmap(-1, size // 4 * 3 + 3)), 0
    try:
        # Piece by piece: a copy of the whole text would be as large as the picture again.
        for at in range(start, len(url), _PIECE):
            piece = b64decode(url[at : at + _PIECE], validate=True)
            buffer[end : end + len(piece)] = piece
            end += len(piece)
    except ValueError:
        return Refused("the data URL cannot be decoded")
    return _too_large(max_bytes) if end > max_bytes else _picture(buffer[:end])


def _picture(body: memoryview) -> Fetched | Refused:
    mime = sniff(body)
    return Refused("the output is not a picture") if mime is None else Fetched(body, mime)


def _too_large(max_bytes: int) -> Refused:
    return Refused(f"the output has more than {max_bytes} bytes")
