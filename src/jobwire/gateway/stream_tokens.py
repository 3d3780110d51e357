"""`POST /v1/stream-tokens`: a token with which a browser's EventSource opens one stream."""

from datetime import UTC, datetime

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from jobwire.api.problems import INVALID
from jobwire.gateway.problems import Problem
from jobwire.gateway.router import CurrentRequest, needs, new_router
from jobwire.gateway.routes import RouteTable
from jobwire.gateway.tokens import TokenMaker


class StreamTokenRequest(BaseModel):
    """The stream to open."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"path": "/v1/jobs/3f2a91/events"}]}
    )
    path: str = Field(max_length=2048, description="the path of the stream, without a query")


class StreamToken(BaseModel):
    """A token, and the URL of the stream with it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "token": "WyIvdjEi.c2ln",
                    "url": "/v1/jobs/3f2a91/events?token=WyIvdjEi.c2ln",
                    "expires_at": "2026-01-31T12:00:00Z",
                }
            ]
        }
    )
    token: str
    url: str
    expires_at: datetime


def router(tokens: TokenMaker, table: RouteTable) -> APIRouter:
    """The route, for the event streams of this table."""
    routes = new_router("streams")

    @routes.post("/v1/stream-tokens", status_code=201, openapi_extra=needs("read"))
    async def make_a_stream_token(body: StreamTokenRequest, request: CurrentRequest) -> StreamToken:
        """Make a token that opens one event stream. It expires soon, and is sent as `?token=`."""
        route = table.find(body.path)[0].get("GET")
        if route is None or not route.stream:
            raise Problem(INVALID, "there is no event stream at this path")
        token = tokens.make(request.principal, body.path)
        return StreamToken(
            token=token.text,
            url=f"{body.path}?token={token.text}",
            expires_at=datetime.fromtimestamp(token.expires, UTC),
        )

    return routes
