"""`GET /v1/me`: who the caller is, so that a page shows only what its key may do."""

from collections.abc import Sequence

from jobwire.api.gateway import ME, Me
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route, serve


def route(version: str, *, has_keys: bool, read_only: bool, features: Sequence[str]) -> Route:
    """The route; `features` are the names of those that have routes."""
    served = list(features)

    async def me(request: HttpRequest) -> Me:
        caller = request.principal
        scopes = [str(scope) for scope in sorted(caller.scopes)]
        return Me(caller.key, caller.tenant, scopes, has_keys, read_only, version, served)

    return serve(ME, me)
