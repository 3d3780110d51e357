"""Without API keys only callers on this machine are served: header checks for that. Pure.

Listening on loopback is not enough: a web page can send requests from a local browser (cross-site),
can resolve its own name to 127.0.0.1 (DNS rebinding), and a local proxy can forward remote clients.
All three are visible in the headers.
"""

from collections.abc import Mapping
from typing import Final

from jobwire.api.problems import CROSS_SITE, FOREIGN_HOST, PROXIED, ProblemKind

_LOCAL_NAMES: Final = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FORWARDED: Final = frozenset(
    {
        b"forwarded",
        b"x-forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-prefix",
        b"x-forwarded-proto",
        b"x-forwarded-server",
        b"x-forwarded-client-cert",
        b"x-real-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-original-forwarded-for",
        b"x-envoy-external-address",
        b"x-azure-clientip",
        b"true-client-ip",
        b"fastly-client-ip",
        b"cf-connecting-ip",
        b"fly-client-ip",
        b"do-connecting-ip",
        b"x-appengine-user-ip",
        b"x-vercel-forwarded-for",
        b"x-nf-client-connection-ip",
        b"cdn-loop",
        b"via",
    }
)
"""What reverse proxies and tunnels add to a request."""
_OWN_SITES: Final = frozenset({b"same-origin", b"none"})


def loopback_violation(method: str, headers: Mapping[bytes, bytes]) -> ProblemKind | None:
    """The problem if this request does not come from a user of this machine; else None."""
    host = headers.get(b"host", b"").lower()
    if _name(host) not in _LOCAL_NAMES:
        return FOREIGN_HOST
    if not _FORWARDED.isdisjoint(headers):
        return PROXIED
    origin = headers.get(b"origin")
    if origin is not None and origin.lower() not in (b"http://" + host, b"https://" + host):
        return CROSS_SITE
    site = headers.get(b"sec-fetch-site")
    if site is not None and site not in _OWN_SITES and not _follows_link(method, headers):
        return CROSS_SITE
    return None


def _follows_link(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a user followed a link: the linking page cannot read the response."""
    return (
        method in _SAFE_METHODS
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest") == b"document"
    )


def _name(host: bytes) -> bytes:
    """The host without its port."""
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() else host
