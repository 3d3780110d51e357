"""What a route demands of a request: a scope of an API key, nothing, or a proof of its own.

    Operation("GET", "/v1/jobs/{id}", "read", …)          a key with this scope
    Operation("GET", "/livez", "public", …)               nothing
    serve(Operation("PUT", …, Proof(…), …), …, verify=…)  the verifier of the route

A self-authenticated route is reached by any host name and without an API key, so it cannot be
declared without a verifier. Declared by features, checked by `admission`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jobwire.api.operation import Scope
from jobwire.api.problems import ProblemKind
from jobwire.gateway.auth import Principal
from jobwire.gateway.request import HttpRequest

Verify = Callable[[HttpRequest], Awaitable[Principal]]
"""Returns the principal of a request with a valid proof, and raises a Problem for any other.

It runs before the route and sees the head of the request; one that signs its body is read by
`request.buffered_body()`. Secrets are compared by `hmac.compare_digest`."""

SELF: Final = "self"
"""The name of self-authenticated access in the OpenAPI document."""


@dataclass(frozen=True, slots=True)
class SelfAuthenticated:
    """The access of a route whose requests carry their own proof: a webhook's signature, an upload
    token, the secret of a bot."""

    verify: Verify
    scheme: str
    """The name of the proof in the OpenAPI document, for example `uploadToken`."""
    security: Mapping[str, object]
    """The OpenAPI security scheme, for example `{"type": "http", "scheme": "bearer"}`."""
    problems: Sequence[ProblemKind] = ()
    """What `verify` answers without a valid proof."""

    def __post_init__(self) -> None:
        if not callable(self.verify):
            raise TypeError(f"{self.scheme}: a self-authenticated route needs a verifier")


Access = Scope | SelfAuthenticated


def access_name(access: Access) -> str:
    """The scope, or `self`."""
    return SELF if isinstance(access, SelfAuthenticated) else access
