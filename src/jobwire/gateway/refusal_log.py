"""The log of requests that are refused without a proof (O-6): one line a second for each kind.

A line counts the refusals of its kind since the line before, and has the facts of the last one.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from jobwire.api.problems import FORBIDDEN, ProblemKind
from jobwire.gateway.auth import ANONYMOUS
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.log import component

_INTERVAL_S: Final = 1.0
_STATUSES: Final = (401, 403, 421)
_log = component("gateway.refusals")


class RefusalLog:
    """Of one gateway. It has at most one entry for each kind of problem."""

    def __init__(self) -> None:
        self._counts: dict[ProblemKind, int] = {}
        """Refusals since the line of this kind; without an entry the next one is logged at once."""
        self._facts: dict[ProblemKind, Mapping[str, object]] = {}

    def add(self, request: HttpRequest, problem: Problem) -> None:
        """Log the refusal of a request that has proved nothing; others are not logged."""
        kind = problem.kind
        has_key = request.principal is not ANONYMOUS or kind is FORBIDDEN
        if has_key or kind.status not in _STATUSES:
            return
        client = request.scope.get("client")
        self._facts[kind] = {
            "kind": kind.code,
            "route": request.route or request.method,
            "client": client[0] if client else "",
            "detail": problem.detail,
        }
        if kind in self._counts:
            self._counts[kind] += 1
        else:
            self._counts[kind] = 1
            self._write(kind)

    def _write(self, kind: ProblemKind) -> None:
        """Now, and again after a second if there were more."""
        count = self._counts.pop(kind)
        facts = self._facts.pop(kind, {})
        if not count:
            return
        _log.warning(
            "requests refused kind=%(kind)s requests=%(requests)s route=%(route)s "
            "client=%(client)s detail=%(detail)s",
            {**facts, "requests": count},
        )
        self._counts[kind] = 0
        asyncio.get_running_loop().call_later(_INTERVAL_S, self._write, kind)
