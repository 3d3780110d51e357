"""Without API keys, a gateway serves the user who started it, and root (O-6).

All users of a machine reach its loopback addresses. `gateway.local_users: any` admits them all, and
so does a system that does not tell whose socket is at the other end of a connection: macOS.
"""

import html
import os

from jobwire.api.problems import OTHER_USER
from jobwire.gateway.auth import CHALLENGE
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.settings import GatewaySettings

_ROOT = 0


class LocalUsers:
    """The users whom a gateway without keys serves."""

    def __init__(self, settings: GatewaySettings) -> None:
        own = frozenset((_ROOT, os.geteuid()))
        self._admitted = own if settings.serves_own_user_only else None

    def check(self, request: HttpRequest) -> None:
        """Raise a Problem unless a user who is served has sent this request."""
        if self._admitted is not None and request.peer_uid() not in self._admitted:
            raise Problem(OTHER_USER, headers=CHALLENGE)


def is_navigation(request: HttpRequest) -> bool:
    """Whether a browser shows the response to its user."""
    return b"text/html" in request.headers.get(b"accept", b"")


def page(problem: Problem) -> Reply:
    """The problem for the user of a browser."""
    body = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>jobwire</title>'
        f"<h1>{problem.kind.status} {problem.kind.title}</h1><p>{html.escape(problem.detail)}</p>"
    )
    media_type = b"text/html; charset=utf-8"
    return Reply(body.encode(), problem.kind.status, problem.headers, media_type)
