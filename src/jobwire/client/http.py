"""What both sides of the client share of HTTP: settings, time limits, and what trouble means."""

import sys
from typing import Final, TypedDict

import httpx

from jobwire.client.calls import ApiRequest, ApiResponse
from jobwire.client.errors import Unreachable
from jobwire.client.target import Target

_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 15.0
_SILENCE_S: Final = 45.0
"""Of an event stream: three heartbeats that did not come."""
LASTING_S: Final = 10.0
"""A stream that held so long was a good one, even if nothing happened on it."""
_CONNECTIONS: Final = httpx.Limits(max_connections=100, max_keepalive_connections=20)
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Options(TypedDict):
    """What an httpx client is made with."""

    base_url: str
    headers: dict[str, str]
    limits: httpx.Limits
    trust_env: bool
    verify: bool
    timeout: httpx.Timeout


def options(place: Target) -> Options:
    """For either kind of httpx client."""
    return {
        "base_url": place.url,
        "headers": place.headers,
        "limits": _CONNECTIONS,
        # The way to this machine leads through no proxy, whatever HTTP_PROXY says.
        "trust_env": not place.is_here,
        # Reading the machine's certificates takes longer than most requests; only TLS needs them.
        "verify": not place.url.startswith("http:"),
        "timeout": httpx.Timeout(_ANSWER_S, connect=_CONNECT_S),
    }


def answer_timeout(ask: ApiRequest) -> httpx.Timeout:
    """For a request that the gateway may think about."""
    return httpx.Timeout(_ANSWER_S + ask.wait_s, connect=_CONNECT_S)


STREAM_TIMEOUT: Final = httpx.Timeout(_ANSWER_S, connect=_CONNECT_S, read=_SILENCE_S)


def trace_headers() -> dict[str, str]:
    """The trace that this call belongs to, where the program has OpenTelemetry."""
    headers: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:  # nobody else can have begun one
        from opentelemetry.propagate import inject

        inject(headers)
    return headers


def stream_headers(last_id: str | None) -> dict[str, str]:
    """For a request for events."""
    accept = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    return {**accept, "Last-Event-ID": last_id} if last_id else accept


def as_answer(response: httpx.Response) -> ApiResponse:
    """An answer that was read to its end."""
    return ApiResponse(response.status_code, response.content, retry_after_s(response))


def retry_after_s(response: httpx.Response) -> float | None:
    """When to come back, if it says so in seconds."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() and len(text) < 10 else None


def as_trouble(error: httpx.HTTPError, url: str) -> Unreachable:
    """Nobody answered; says why, and whether the request may have arrived all the same."""
    why = " ".join(str(error).split()) or type(error).__name__
    sent = not isinstance(error, _NEVER_SENT)
    return Unreachable(f"no answer from {url} ({why})", sent=sent)
