"""One question to a model's server over HTTP, and its answer as it comes.

Called by `endpoint.py`. Each call has a connection of its own: closing that is what stops the
model, and nothing is left to be shared, kept warm or found dead. Whatever goes wrong is raised as
Trouble. Our key goes into a header and nowhere else.
"""

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from ssl import SSLContext
from typing import Final
from urllib.parse import urlsplit

import httpx

from jobwire.handlers.llm.models import replies
from jobwire.handlers.llm.models.errors import Again, ModelError
from jobwire.handlers.llm.models.replies import Who
from jobwire.job.messages import Json

_CONNECT_S: Final = 10.0
_LOOK_S: Final = 5.0
_LONGEST_REFUSAL: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServer:
    """Where it is, what opens it, and how patient we are with it."""

    base_url: str
    api_key: str = field(default="", repr=False)
    first_s: float = 60.0
    """Until its first word."""
    idle_s: float = 20.0
    """Between two words."""

    url_at: str = "llm.base_url (OPENAI_BASE_URL)"
    """The setting that its address comes from, for people; `key_at`: the key's."""
    key_at: str = "llm.api_key (OPENAI_API_KEY)"

    @property
    def who(self) -> Who:
        """Its name for people, without what else the URL may hold."""
        parts = urlsplit(self.base_url)
        port = f":{parts.port}" if parts.port else ""
        return Who(f"the model's server at {parts.hostname}{port}", self.url_at, self.key_at)

    async def look(self) -> None:
        """Trouble where nobody is there; whatever an HTTP server answers is a sign of life."""
        until = asyncio.get_running_loop().time() + _LOOK_S
        async with self._client() as client:
            request = client.build_request("GET", self.base_url.rstrip("/") + "/models")
            await (await self._send(client, request, until)).aclose()

    @contextlib.asynccontextmanager
    async def post(self, path: str, body: Mapping[str, Json]) -> AsyncGenerator["ModelCall"]:
        """Ask. What it gives was answered with success, and its body is still to come."""
        try:
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
        except ModelError as trouble:
            if self.api_key:
                trouble.wrong = trouble.wrong.replace(self.api_key, "••••")
            raise

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            verify=_trust(),
            trust_env=not _is_loopback(self.base_url),  # no proxy stands between us and ourselves
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
            reason = str(error) or type(error).__name__
            raise ModelError(
                "backend_unavailable",
                f"{self.who.name} cannot be reached: {reason}",
                Again.SOON,
                cure=f"is it running? its address is {self.url_at}",
            ) from error

    def too_slow(self) -> ModelError:
        """It kept us waiting longer than we do."""
        return ModelError("backend_timeout", f"{self.who.name} was silent for too long", Again.ONCE)

    def cut(self, reason: str) -> ModelError:
        """The answer ended before its end."""
        return ModelError("backend_stream_cut", f"{self.who.name} broke off: {reason}", Again.ONCE)


class ModelCall:
    """An answer that has begun."""

    def __init__(self, server: ModelServer, response: httpx.Response, until: float) -> None:
        self._server = server
        self._response = response
        self._chunks = response.aiter_bytes()
        self._until = until

    @property
    def content_type(self) -> str:
        return self._response.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_llama(self) -> bool:
        """Whether llama.cpp answers, which takes some wishes more."""
        return self._response.headers.get("server", "").lower() == "llama.cpp"

    def wait(self, seconds: float) -> None:
        """From now on, be patient for so long."""
        self._until = asyncio.get_running_loop().time() + seconds

    async def chunk(self) -> bytes | None:
        """The next bytes of the body; None at its end."""
        try:
            async with asyncio.timeout_at(self._until):
                return await anext(self._chunks, None)
        except TimeoutError:
            raise self._server.too_slow() from None
        except httpx.HTTPError as error:
            raise self._server.cut(str(error) or type(error).__name__) from error

    async def body(self, limit: int) -> bytes:
        """All of the body, or its beginning where it is longer than `limit`."""
        data = b""
        while len(data) <= limit and (chunk := await self.chunk()) is not None:
            data += chunk
        return data

    async def refusal(self) -> ModelError:
        """What an answer without success means."""
        body = b""
        with contextlib.suppress(ModelError):  # the status says enough
            body = await self.body(_LONGEST_REFUSAL)
        return replies.refusal(
            *(self._response.status_code, self._response.headers, body),
            server=self._server.who,
            now=datetime.now(UTC),
        )


@cache
def _trust() -> SSLContext:
    return httpx.create_ssl_context()  # 20 ms of work, the same for every call


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
