"""The parts of uvicorn that are not public API, after a check of uvicorn's version.

`connection` and `response_cycle` subclass these parts; decision 0022 lists what they use. The parts
may change with any minor version, so another one than the tested one is refused.
"""

from typing import Final

import uvicorn

TESTED: Final = "0.54"
"""The tested minor version; pyproject.toml requires the same."""


class UnsupportedUvicorn(ImportError):
    """The installed uvicorn is of another minor version than the tested one."""


def check_version(installed: str) -> None:
    """Raise UnsupportedUvicorn unless `installed` is a release of the tested minor version."""
    if installed.split(".")[:2] != TESTED.split("."):
        raise UnsupportedUvicorn(
            f"uvicorn {installed} is installed, but the gateway needs uvicorn {TESTED}.x; "
            f"run: pip install 'uvicorn~={TESTED}.0'"
        )


check_version(uvicorn.__version__)

from uvicorn._types import ASGI3Application  # noqa: E402 - only after the check
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT  # noqa: E402
from uvicorn.protocols.http.httptools_impl import (  # noqa: E402
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

__all__ = [
    "HIGH_WATER_LIMIT",
    "STATUS_LINE",
    "ASGI3Application",
    "HttpToolsProtocol",
    "RequestResponseCycle",
]
