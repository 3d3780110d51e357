"""One HTTP request to a model server and its streamed response.

Called by `endpoint.py`. Each call opens its own connection, because closing it is what stops the
model. Every failure is raised as ModelError. The API key is sent as a header and removed from error
messages.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from ssl import SSLCertVerificationError, SSLContext
from typing import Final
from urllib.parse import urlsplit

import httpx

from jobwire.handlers.llm.models import replies
from jobwire.handlers.llm.models.errors import ModelError, RetryLimit
from jobwire.handlers.llm.models.replies import ServerLabel
from jobwire.handlers.llm.models.secrets import SecretMask
from jobwire.job.messages import Json
from jobwire.net import is_loopback_url

_CONNECT_S: Final = 10.0
_CHECK_TIMEOUT_S: Final = 5.0
_MAX_ERROR_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServer:
    """Address, key and timeouts of a model server."""

    base_url: str
    api_key: str = field(default="", repr=False)
    first_s: float = 60.0
    """Timeout for the first event."""
    idle_s: float = 20.0
    """Timeout between two events."""

    url_at: str = "llm.base_url (OPENAI_BASE_URL)"
    """The setting that holds the address, for error messages; `key_at`: the key."""
    key_at: str = "llm.api_key (OPENAI_API_KEY)"

    @property
    def label(self) -> ServerLabel:
        """The server in error messages: host and port only, since a URL may contain secrets."""
        parts = urlsplit(self.base_url)
        port = f":{parts.port}" if parts.port else ""
        name = f"the model's server at {parts.hostname}{port}"
        mask = SecretMask([self.api_key, parts.password or ""])
        return ServerLabel(name, self.url_at, self.key_at, mask)

    async def check(self) -> None:
        """Raise ModelError if the server does not respond; any HTTP response counts."""
        until = asyncio.get_running_loop().time() + _CHECK_TIMEOUT_S
        async with self._client() as client:
            request = client.build_request("GET", self.base_url.rstrip("/") + "/models")
            await (await self._send(client, request, until)).aclose()

    @contextlib.asynccontextmanager
    async def post(self, path: str, body: Mapping[str, Json]) -> AsyncGenerator["ModelCall"]:
        """Send a request; yields the successful response before its body is read."""
        async with self._client() as client:
            url = self.base_url.rstrip("/") + path
            request = client.build_request("POST", url, json=dict(body))
            until = asyncio.get_running_loop().time() + self.first_s
            response = await self._send(client, request, until)
            try:
                call = ModelCall(self, response, until)
                if not response.is_success:
                    raise await call.refusal()
                yield call
            finally:
                await response.aclose()

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            verify=_ssl_context(),
            trust_env=not is_loopback_url(self.base_url),  # a proxy cannot reach it
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            headers={"Authorization": f"Bearer {self.api_key}"} if self.api_key else {},
        )

    async def _send(
        self, client: httpx.AsyncClient, request: httpx.Request, until: float
    ) -> httpx.Response:
        try:
            async with asyncio.timeout_at(until):
                return await client.send(request, stream=True)
        except TimeoutError:
            raise self.too_slow() from None
        except httpx.HTTPError as error:
            reason = self.label.quote(str(error) or type(error).__name__)
            if _is_certificate_error(error):
                raise ModelError(
                    "backend_unavailable",
                    f"{self.label.name} has a certificate that is not trusted: {reason}",
                    fix=f"set SSL_CERT_FILE to its CA certificate, or correct {self.url_at}",
                ) from error
            raise ModelError(
                "backend_unavailable",
                f"{self.label.name} cannot be reached: {reason}",
                RetryLimit.TWICE,
                fix=f"start it, or correct {self.url_at}",
            ) from error

    def too_slow(self) -> ModelError:
        """The error for a timeout."""
        return ModelError(
            "backend_timeout", f"{self.label.name} sent nothing within the timeout", RetryLimit.ONCE
        )

    def cut(self, reason: str) -> ModelError:
        """The error for an incomplete response."""
        return ModelError(
            "backend_stream_cut", f"{self.label.name} closed the stream: {reason}", RetryLimit.ONCE
        )


class ModelCall:
    """A response whose headers were read."""

    def __init__(self, server: ModelServer, response: httpx.Response, until: float) -> None:
        self._server = server
        self._response = response
        self._chunks = response.aiter_bytes()
        self._until = until

    @property
    def content_type(self) -> str:
        return self._response.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_event_stream(self) -> bool:
        return self.content_type == "text/event-stream"

    @property
    def is_llama(self) -> bool:
        """Whether the server is llama.cpp, which supports progress reports."""
        return self._response.headers.get("server", "").lower() == "llama.cpp"

    def wait(self, seconds: float) -> None:
        """Set the timeout for the next bytes."""
        self._until = asyncio.get_running_loop().time() + seconds

    async def chunk(self) -> bytes | None:
        """The next bytes of the body; None at its end."""
        try:
            async with asyncio.timeout_at(self._until):
                return await anext(self._chunks, None)
        except TimeoutError:
            raise self._server.too_slow() from None
        except httpx.HTTPError as error:
            reason = self._server.label.quote(str(error) or type(error).__name__)
            raise self._server.cut(reason) from error

    async def body(self, limit: int) -> bytes:
        """The body, cut at about `limit` bytes."""
        data = bytearray()
        while len(data) <= limit and (chunk := await self.chunk()) is not None:
            data += chunk
        return bytes(data)

    async def refusal(self) -> ModelError:
        """The error for a response without success."""
        body = b""
        with contextlib.suppress(ModelError):  # the status is enough
            body = await self.body(_MAX_ERROR_BYTES)
        return replies.refusal(
            *(self._response.status_code, self._response.headers, body),
            server=self._server.label,
            now=datetime.now(UTC),
        )


def _is_certificate_error(error: BaseException) -> bool:
    """Whether the cause is a certificate: waiting does not help."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


@cache
def _ssl_context() -> SSLContext:
    return httpx.create_ssl_context()  # takes 20 ms and is the same for every call
