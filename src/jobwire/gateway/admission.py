"""Checks that every request passes before its route runs and before its body is read.

In this order: loopback and the user (if there are no keys), authentication, scope, rate, declared
body size. A self-authenticated route has its verifier instead of the first four, and it runs last:
it may read the body. Called by `app`.
"""

from typing import cast

from jobwire.api.operation import Scope
from jobwire.api.problems import BAD_REQUEST, ENCODED
from jobwire.gateway.access import SelfAuthenticated
from jobwire.gateway.accounts import prove
from jobwire.gateway.auth import Keyring, Principal, require
from jobwire.gateway.limits import BodyBudget, RequestRate
from jobwire.gateway.local_users import LocalUsers, is_navigation
from jobwire.gateway.loopback import loopback_violation
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.tokens import TokenMaker

# A proxy and this server could each use another one of two values.
_SINGLE_HEADERS = (
    b"host",
    b"authorization",
    b"origin",
    b"content-encoding",
    b"content-type",
    b"idempotency-key",
    b"last-event-id",
)


class Admission:
    """The checks of one gateway."""

    def __init__(
        self,
        keyring: Keyring,
        tokens: TokenMaker,
        rate: RequestRate,
        max_body: int,
        budget: BodyBudget,
        local_users: LocalUsers,
    ) -> None:
        self.keyring = keyring
        self.tokens = tokens
        self._rate = rate
        self._max_body = max_body
        self._budget = budget
        self._local_users = local_users

    def check_request(self, request: HttpRequest) -> None:
        """The checks that do not depend on the route."""
        headers = request.headers
        if len(headers) != len(request.scope["headers"]):
            names = [name for name, _ in request.scope["headers"]]
            for name in _SINGLE_HEADERS:
                if names.count(name) > 1:
                    raise Problem(BAD_REQUEST, f"the header {name.decode()} is given twice")
        if b"host" not in headers and request.scope["http_version"] == "1.1":
            raise Problem(BAD_REQUEST, "the header host is missing")

    def check_local(self, request: HttpRequest, *, public: bool = False) -> None:
        """Without keys: raise a Problem unless the request comes from a user of this machine who is
        served. A public route serves the programs of all its users."""
        if self.keyring.is_open:
            violation = loopback_violation(request.method, request.headers)
            if violation is not None:
                raise Problem(violation)
            if not public or is_navigation(request):
                self._local_users.check(request)

    def authorize(
        self, request: HttpRequest, scope: Scope, max_body: int = 0, *, stream: bool = False
    ) -> None:
        """Admit the request to a route that requires `scope`, or raise a Problem."""
        self.check_local(request, public=scope == "public")
        headers = request.headers
        if scope != "public":
            token = request.query("token") if stream and b"authorization" not in headers else None
            if token is None:
                principal = self.keyring.authenticate(headers.get(b"authorization"))
            else:
                principal = self.tokens.read(token, request.path)
            require(principal, scope)
            self._rate.spend(principal.key)
            prove(request, principal)
        self._limit_body(request, max_body)

    async def verify(
        self, request: HttpRequest, access: SelfAuthenticated, max_body: int = 0
    ) -> None:
        """Admit the request to a self-authenticated route, or raise a Problem."""
        self._limit_body(request, max_body)
        # Not believed to be typed: a verifier that forgets its answer must not admit any client.
        principal = cast("object", await access.verify(request))
        if not isinstance(principal, Principal):
            raise TypeError(f"the verifier of {access.scheme} returned {principal!r}")
        prove(request, principal)

    def _limit_body(self, request: HttpRequest, max_body: int) -> None:
        headers = request.headers
        request.max_body = max_body or self._max_body
        request.budget = self._budget
        if (
            headers.get(b"content-encoding", b"identity").lower() != b"identity"
            or headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked"
        ):
            raise Problem(ENCODED, headers=((b"accept-encoding", b"identity"),))
        length = headers.get(b"content-length")
        if length is not None and int(length) > request.max_body:
            raise request.too_large()
