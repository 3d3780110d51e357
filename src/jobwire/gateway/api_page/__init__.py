"""`/docs`: the API as a page, drawn in the browser from /openapi.json; every request can be tried.

Three static files of this package, nothing from elsewhere: no library, no inline code.
"""

from importlib.resources import files
from typing import Final

from jobwire.gateway import static_files
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.routes import Doc, HotRoute

PATH: Final = "/docs"
_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def routes() -> list[HotRoute]:
    """The page and its files."""
    doc = Doc(summary="The API as a page", tag="page", hidden=True)
    return [
        HotRoute("GET", PATH, "public", _redirect, doc),
        *static_files.routes(PATH, files(__name__) / "static", csp=_CSP),
    ]


async def _redirect(_request: HttpRequest) -> Reply:
    # Relative, for a proxy that serves the gateway below a path of its own.
    return Reply(b"", 308, ((b"location", b"docs/"),), media_type=b"text/plain; charset=utf-8")
