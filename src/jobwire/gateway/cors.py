"""Calls by pages of other origins (CORS), for routes that allow them (`Operation(cors=True)`).

Only the configured origins may call such a route and read its responses, refusals included; no
other route is affected. Cookies are never allowed: a page must send its proof in a header.
"""

from collections.abc import Mapping
from typing import Final

from jobwire.gateway.problems import Headers
from jobwire.gateway.request import HttpRequest, Message
from jobwire.gateway.route import Route

_VARY: Final = (b"vary", b"origin")
_ALLOWED_HEADERS: Final = b"authorization, content-type, x-request-id"
_EXPOSED_HEADERS: Final = b"location, retry-after, x-request-id"
_MAX_AGE_S: Final = 600


class Cors:
    """The origins of one gateway."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)

    def preflight(self, request: HttpRequest, by_method: Mapping[str, Route]) -> Headers | None:
        """The headers for a browser that asks before it calls; None for any other request."""
        wanted = request.headers.get(b"access-control-request-method", b"").decode("latin-1")
        route = by_method.get(wanted)
        if request.method != "OPTIONS" or route is None or not route.cors:
            return None
        request.route = f"OPTIONS {route.path}"
        headers = self._headers(request)
        if len(headers) > 1:
            methods = sorted({each.method for each in by_method.values() if each.cors})
            headers = (
                *headers,
                (b"access-control-allow-methods", ", ".join(methods).encode()),
                (b"access-control-allow-headers", _ALLOWED_HEADERS),
                (b"access-control-max-age", b"%d" % _MAX_AGE_S),
            )
        return headers

    def allow(self, request: HttpRequest) -> None:
        """Add the headers of CORS to the response of this request, whatever it will be."""
        headers, send = self._headers(request), request.send

        async def send_with_origin(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        request.send = send_with_origin

    def _headers(self, request: HttpRequest) -> Headers:
        origin = request.headers.get(b"origin", b"")
        if origin not in self._origins:
            return (_VARY,)
        return (
            _VARY,
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED_HEADERS),
        )
