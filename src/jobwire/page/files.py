"""The files of the page as routes of a gateway."""

from importlib.resources import files
from typing import Final
from urllib.parse import urlsplit

from jobwire.gateway import static_files
from jobwire.gateway.route import Route

_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src {connect}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""No inline code, nothing from elsewhere; pictures that the page has fetched are `blob:`."""


def page_routes(prefix: str = "/", upload_url: str = "") -> list[Route]:
    """The page's files; `upload_url` is where an upload gateway on another host takes photos."""
    parts = urlsplit(upload_url)
    connect = f"'self' {parts.scheme}://{parts.netloc}" if parts.netloc else "'self'"
    csp = _CSP.format(connect=connect)
    return static_files.routes(prefix, files("jobwire.page") / "static", csp=csp)
