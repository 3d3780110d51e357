"""The way in, the same for every route: nothing of a request is read before it passes here.

In this order: this machine's own user (without keys), who asks, the scope, the rate, the size
that the body says it has. Called by `app` for hot routes and by `router` for FastAPI's.
"""

from jobwire.gateway.auth import Keyring, Scope, require
from jobwire.gateway.limits import RateLimit
from jobwire.gateway.loopback import loopback_violation
from jobwire.gateway.problems import BAD_REQUEST, ENCODED, Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.tokens import TokenMaker

# Given twice, one part of the road may believe the first and another the second.
_ONCE = (
    b"host",
    b"authorization",
    b"origin",
    b"content-encoding",
    b"content-type",
    b"idempotency-key",
    b"last-event-id",
)


class Admission:
    """What all requests to one gateway have to pass."""

    def __init__(
        self, keyring: Keyring, tokens: TokenMaker, rate: RateLimit, max_body: int
    ) -> None:
        self.keyring = keyring
        self.tokens = tokens
        self._rate = rate
        self._max_body = max_body

    def check_request(self, call: HttpRequest) -> None:
        """What can be said before the route is known."""
        headers = call.headers
        if len(headers) != len(call.scope["headers"]):
            names = [name for name, _ in call.scope["headers"]]
            for name in _ONCE:
                if names.count(name) > 1:
                    raise Problem(BAD_REQUEST, f"the header {name.decode()} is given twice")
        if self.keyring.is_open:
            why = loopback_violation(call.method, headers)
            if why is not None:
                raise Problem(why)

    def authorize(
        self, call: HttpRequest, scope: Scope, max_body: int = 0, *, stream: bool = False
    ) -> None:
        """Let the call through to a route that asks for `scope`, or raise the Problem."""
        headers = call.headers
        if scope != "public":
            token = call.query("token") if stream and b"authorization" not in headers else None
            if token is None:
                call.principal = self.keyring.authenticate(headers.get(b"authorization"))
            else:
                call.principal = self.tokens.read(token, call.path)
            require(call.principal, scope)
            self._rate.spend(call.principal.key)
        call.max_body = max_body or self._max_body
        if (
            headers.get(b"content-encoding", b"identity").lower() != b"identity"
            or headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked"
        ):
            raise Problem(ENCODED, headers=((b"accept-encoding", b"identity"),))
        length = headers.get(b"content-length")
        if length is not None and int(length) > call.max_body:
            raise call.too_large()
