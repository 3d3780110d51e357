"""`GET /v1/me`: who the caller is, so that a page shows only what its key may do."""

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Response
from msgspec import Meta, Struct

from jobwire.gateway.router import CurrentRequest, documented, json_response, new_router
from jobwire.gateway.routes import Doc


class MeBody(Struct, frozen=True):
    """The caller's API key."""

    key: Annotated[str, Meta(description="its name; `local` where the gateway has no keys")]
    tenant: str
    scopes: list[str]
    signed_in: Annotated[bool, Meta(description="false: the gateway has no keys")]
    read_only: Annotated[bool, Meta(description="whether this gateway has no routes that change")]
    version: str
    features: Annotated[list[str], Meta(description="what this gateway serves, as `images`")]


ME: Final = Doc(
    summary="The caller's key, tenant and scopes",
    tag="health",
    answer=MeBody,
    example={
        "key": "ops",
        "tenant": "default",
        "scopes": ["read", "submit"],
        "signed_in": True,
        "read_only": False,
        "version": "0.1.0",
        "features": ["jobs", "images"],
    },
)


def router(version: str, *, has_keys: bool, read_only: bool, features: Sequence[str]) -> APIRouter:
    """The route; `features` are the names of those that have routes."""
    routes = new_router("health")
    served = list(features)

    @routes.get("/v1/me", openapi_extra=documented("read", ME))
    async def me(request: CurrentRequest) -> Response:
        caller = request.principal
        scopes = [str(scope) for scope in sorted(caller.scopes)]
        body = MeBody(caller.key, caller.tenant, scopes, has_keys, read_only, version, served)
        return json_response(body)

    return routes
