"""`POST /v1/stream-tokens`: a token with which a browser's EventSource opens one stream."""

from collections.abc import Callable
from datetime import UTC, datetime

from jobwire.api.gateway import MAKE_STREAM_TOKEN, StreamToken, StreamTokenRequest
from jobwire.api.problems import INVALID
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route, serve
from jobwire.gateway.tokens import TokenMaker


def route(tokens: TokenMaker, is_stream: Callable[[str], bool]) -> Route:
    """The route; `is_stream` tells whether the gateway has an event stream at a path."""

    async def make(request: HttpRequest, body: StreamTokenRequest) -> StreamToken:
        if not is_stream(body.path):
            raise Problem(INVALID, "there is no event stream at this path")
        token = tokens.make(request.principal, body.path)
        url = f"{request.mount}{body.path}?token={token.text}"
        return StreamToken(token.text, url, datetime.fromtimestamp(token.expires, UTC))

    return serve(MAKE_STREAM_TOKEN, make)
