"""Signed S3 calls that obstore does not have, with the standard library's HTTP client.

Called by `store.py` (pages and deletion), `versions.py`, `lifecycle.py` and the local S3 server. A
call runs in a thread, on a connection that the next call uses again. All calls are safe to repeat,
and are repeated when there is no response.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

from jobwire.objects.config import BucketConfig
from jobwire.objects.connection_pool import ConnectionPool
from jobwire.objects.faults import Fault, code_in
from jobwire.objects.signing import SigningRequest, signed_headers

_BACKOFF_S: Final = (0.1, 0.4, 1.0)
_SUCCESS: Final = range(200, 300)


@dataclass(frozen=True, slots=True)
class SignedResponse:
    """A response; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The S3 error code, if this is an error document."""
        return code_in(self.body.decode(errors="replace"))


class SignedCalls:
    """Requests to one bucket, signed with its keys."""

    def __init__(self, config: BucketConfig) -> None:
        self.config = config
        self._host = urlsplit(config.endpoint).netloc
        self._pool = ConnectionPool(config.endpoint, config.timeout_s)
        self.on_date: Callable[[int], None] = lambda _date_ms: None
        """Called with the server's time that an answer names, in milliseconds."""

    async def send(
        self,
        method: str,
        key: str = "",
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        expect: Container[int] = (),
    ) -> SignedResponse:
        """Send a request; a status that is neither a success nor in `expect` raises."""
        for delay_s in (*_BACKOFF_S, None):
            response = await asyncio.to_thread(
                self.exchange, method, key, query=query, headers=headers, body=body
            )
            if isinstance(response, SignedResponse):
                fault = Fault(response.status, response.code)
                expected = response.status in expect and fault.code != "NoSuchBucket"
                if response.status in _SUCCESS or expected:
                    return response
            else:
                fault = response
            if not fault.unanswered or delay_s is None:
                raise fault.error(self.config, f"{method} {_shown(key, query)}")
            await asyncio.sleep(delay_s)
        raise AssertionError("the last attempt returns or raises")

    def exchange(
        self,
        method: str,
        key: str = "",
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> SignedResponse | Fault:
        """Send a request once and return its response, of any status; blocks."""
        path = f"/{self.config.bucket}" + (f"/{key}" if key else "")
        request = SigningRequest(method, self._host, path, query or {}, headers or {}, body)
        signed = signed_headers(
            request,
            access_key=self.config.access_key,
            secret_key=self.config.secret_key,
            region=self.config.region,
            session_token=self.config.session_token,
            now=datetime.now(UTC),
        )
        try:
            response, content = self._pool.exchange(method, request.target, body, signed)
        except (OSError, http.client.HTTPException) as error:
            return Fault(0, reason=str(error) or type(error).__name__)
        with contextlib.suppress(TypeError, ValueError):  # it names no time
            date = parsedate_to_datetime(response.headers["date"])
            self.on_date(round(date.timestamp() * 1000))
        return SignedResponse(
            status=response.status,
            headers={name.lower(): value for name, value in response.getheaders()},
            body=content,
        )


def _shown(key: str, query: Mapping[str, str] | None) -> str:
    return (key or "the bucket") + (f"?{'&'.join(query)}" if query else "")
