"""HTTP options, timeouts and conversions that both clients share."""

import sys
import time
from typing import Any, Final, TypedDict

import httpx

from jobwire.client.calls import ApiRequest, ApiResponse
from jobwire.client.errors import ClientError, Unreachable
from jobwire.client.event_cursor import EventCursor
from jobwire.client.retry_budget import RetryBudget
from jobwire.client.target import Target
from jobwire.job.ids import random_fraction

_CONNECT_S: Final = 5.0
_RESPONSE_S: Final = 15.0
_IDLE_S: Final = 45.0
"""Read timeout of an event stream: three missed heartbeats."""
_HEALTHY_S: Final = 10.0
"""A stream that stayed open this long was healthy, even without events."""
_CONNECTIONS: Final = httpx.Limits(max_connections=100, max_keepalive_connections=20)
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Options(TypedDict):
    """Keyword arguments of an httpx client."""

    base_url: str
    headers: dict[str, str]
    limits: httpx.Limits
    trust_env: bool
    verify: bool
    timeout: httpx.Timeout


def options(target: Target) -> Options:
    """Return the options for either httpx client."""
    return {
        "base_url": target.url,
        "headers": target.headers,
        "limits": _CONNECTIONS,
        # Requests to this machine use no proxy, whatever HTTP_PROXY is.
        "trust_env": not target.is_local,
        # Loading the CA certificates takes longer than most requests; only TLS needs them.
        "verify": not target.url.startswith("http:"),
        "timeout": httpx.Timeout(_RESPONSE_S, connect=_CONNECT_S),
    }


def request_timeout(request: ApiRequest) -> httpx.Timeout:
    """Return the timeout, with the time that the gateway may hold the request."""
    return httpx.Timeout(_RESPONSE_S + request.wait_s, connect=_CONNECT_S)


STREAM_TIMEOUT: Final = httpx.Timeout(_RESPONSE_S, connect=_CONNECT_S, read=_IDLE_S)


def trace_headers() -> dict[str, str]:
    """Return the headers of the current trace, if the program uses OpenTelemetry."""
    headers: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:  # not imported: no trace can be active
        from opentelemetry.propagate import inject

        inject(headers)
    return headers


def stream_headers(last_id: str | None) -> dict[str, str]:
    """Return the headers of an event stream request."""
    accept = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    return {**accept, "Last-Event-ID": last_id} if last_id else accept


def as_response(response: httpx.Response) -> ApiResponse:
    """Convert a response whose body was read."""
    return ApiResponse(response.status_code, response.content, retry_after_s(response))


def retry_after_s(response: httpx.Response) -> float | None:
    """Parse Retry-After, if it is in seconds."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() and len(text) < 10 else None


def as_unreachable(error: httpx.HTTPError, url: str) -> Unreachable:
    """Convert a transport error; `sent` is whether the request may have arrived."""
    why = " ".join(str(error).split()) or type(error).__name__
    sent = not isinstance(error, _NEVER_SENT)
    return Unreachable(f"no answer from {url} ({why})", sent=sent)


def reconnect_pause_s(
    cursor: EventCursor[Any], budget: RetryBudget, failure: ClientError, began_s: float
) -> float:
    """Seconds until an event stream is opened again after a connection that began at `began_s`;
    raises the failure when the budget is used up."""
    now_s = time.monotonic()
    if cursor.responded:
        budget.responded(healthy=bool(cursor.received) or now_s - began_s > _HEALTHY_S)
    pause_s = budget.pause_s(failure, now_s, random_fraction())
    if pause_s is None:
        raise failure
    return pause_s
