"""One TLS context for all HTTP clients of a test process that ask for the usual one.

httpx loads the certificates of the machine for each client, also for one that only uses http: of
the suite's CPU time that was one second in thirty.
"""

from __future__ import annotations

import functools
import importlib
import os
import ssl
from typing import Any

import httpx


def pytest_configure() -> None:
    @functools.cache
    def usual(trust_env: bool, *_: str | None) -> ssl.SSLContext:
        return httpx.create_ssl_context(trust_env=trust_env)

    def create(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is True and cert is None:
            # httpx reads these two.
            return usual(trust_env, *map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))
        return httpx.create_ssl_context(verify=verify, cert=cert, trust_env=trust_env)

    transports = importlib.import_module("httpx._transports.default")
    transports.create_ssl_context = create  # pyright: ignore[reportAttributeAccessIssue]  # its own name for httpx.create_ssl_context
