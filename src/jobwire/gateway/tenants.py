"""Which tenant's resources a caller creates, sees and lists (O-6). Pure.

Called by the routes of all wires. What a caller may not see is answered as not found.
"""

from typing import Final

from jobwire.api.problems import FORBIDDEN
from jobwire.gateway.auth import LOCAL
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.settings import ALL_TENANTS

DEFAULT_TENANT: Final = LOCAL.tenant


def own_tenant(request: HttpRequest) -> str:
    """The tenant of what the caller creates."""
    return _single(request.principal.tenant)


def may_see(request: HttpRequest, owner: str) -> bool:
    """Whether the caller may see and change what belongs to the tenant `owner`."""
    return request.principal.tenant in (owner, ALL_TENANTS)


def listed_tenant(request: HttpRequest, given: str | None, what: str) -> str:
    """The tenant whose resources are listed: the given one if the caller may see it; else its own.
    `what` names the resources."""
    if given is None:
        return own_tenant(request)
    owner = _single(given)
    if not may_see(request, owner):
        detail = f"only a key of the tenant '*' may list the {what} of other tenants"
        raise Problem(FORBIDDEN, detail)
    return owner


def sees_content(request: HttpRequest) -> bool:
    """Whether the caller may read payloads, results and errors."""
    return "read" in request.principal.scopes


def sees_exceptions(request: HttpRequest) -> bool:
    """Whether the caller may read exceptions of handlers, which may quote secrets (J-55)."""
    return "admin" in request.principal.scopes


def _single(name: str) -> str:
    return DEFAULT_TENANT if name in ("", ALL_TENANTS) else name
