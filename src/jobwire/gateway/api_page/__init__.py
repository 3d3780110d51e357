"""`/docs`: the API as a page, drawn in the browser from /openapi.json; every request can be tried.

Three static files of this package, nothing from elsewhere: no library, no inline code.
"""

from importlib.resources import files
from typing import Final

from jobwire.api.gateway import DOCS
from jobwire.gateway import static_files
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import Route, serve

_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def routes() -> list[Route]:
    """The page and its files."""
    return [
        serve(DOCS, _redirect),
        *static_files.routes(DOCS.path, files(__name__) / "static", csp=_CSP),
    ]


async def _redirect(_request: HttpRequest) -> Reply:
    # Relative, for a proxy that serves the gateway below a path of its own.
    return Reply(b"", 308, ((b"location", b"docs/"),), media_type=b"text/plain; charset=utf-8")
