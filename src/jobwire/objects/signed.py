"""Signed calls for what obstore has not: one request, one answer, over the standard library.

Called by `versions.py`, `lifecycle.py` and whoever makes a bucket. These calls are rare (a start,
a sweep, a removal), so each has its own connection, made in a thread; that keeps an HTTP client
out of the installation. Every one of them may be repeated safely, and is when no answer comes.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import SplitResult, urlsplit

from jobwire.objects.config import BucketConfig
from jobwire.objects.faults import Fault, code_in
from jobwire.objects.signing import Request, signed_headers

_PAUSES_S: Final = (0.1, 0.4, 1.0)
_SUCCESS: Final = range(200, 300)


@dataclass(frozen=True, slots=True)
class SignedResponse:
    """What the server said; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """S3's own code, if this is an error document."""
        return code_in(self.body.decode(errors="replace"))


class SignedCalls:
    """Requests to one bucket, signed with its keys."""

    def __init__(self, config: BucketConfig) -> None:
        self.config = config

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
        """Send a request; an answer that is neither a success nor in `expect` is an error."""
        for pause_s in (*_PAUSES_S, None):
            answer = await asyncio.to_thread(
                self.exchange, method, key, query=query, headers=headers, body=body
            )
            if isinstance(answer, SignedResponse):
                fault = Fault(answer.status, answer.code)
                expected = answer.status in expect and fault.code != "NoSuchBucket"
                if answer.status in _SUCCESS or expected:
                    return answer
            else:
                fault = answer
            if not fault.unanswered or pause_s is None:
                raise fault.error(self.config, f"{method} {_shown(key, query)}")
            await asyncio.sleep(pause_s)
        raise AssertionError("the last sending returns or raises")

    def exchange(
        self,
        method: str,
        key: str = "",
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> SignedResponse | Fault:
        """Send a request once and wait for the answer, whatever it is; blocks."""
        endpoint = urlsplit(self.config.endpoint)
        path = f"/{self.config.bucket}" + (f"/{key}" if key else "")
        request = Request(method, endpoint.netloc, path, query or {}, headers or {}, body)
        signed = signed_headers(
            request,
            access_key=self.config.access_key,
            secret_key=self.config.secret_key,
            region=self.config.region,
            session_token=self.config.session_token,
            now=datetime.now(UTC),
        )
        connection = self._connect(endpoint)
        try:
            connection.request(method, request.target, body=body or None, headers=signed)
            response = connection.getresponse()
            return SignedResponse(
                status=response.status,
                headers={name.lower(): value for name, value in response.getheaders()},
                body=response.read(),
            )
        except (OSError, http.client.HTTPException) as error:
            return Fault(0, reason=str(error) or type(error).__name__)
        finally:
            connection.close()

    def _connect(self, endpoint: SplitResult) -> http.client.HTTPConnection:
        timeout_s = self.config.timeout_s
        if endpoint.scheme == "http":
            return http.client.HTTPConnection(endpoint.netloc, timeout=timeout_s)
        return http.client.HTTPSConnection(
            endpoint.netloc, timeout=timeout_s, context=ssl.create_default_context()
        )


def _shown(key: str, query: Mapping[str, str] | None) -> str:
    return (key or "the bucket") + (f"?{'&'.join(query)}" if query else "")
