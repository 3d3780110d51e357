"""What an operator asks of all systems at once: `/v1/overview`, `/v1/failures`, `/v1/search`.

The routes join the answers of the systems' views. A system whose backend does not answer is named
in `unavailable`, and the others are shown.
"""

from collections.abc import Sequence
from typing import Final

from jobwire.api import overview as api
from jobwire.gateway.all_systems import audience, read_each
from jobwire.gateway.cached_value import CachedValue
from jobwire.gateway.operator_view import OperatorView
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import Route, reply, serve

FRESH_S: Final = 0.5
"""How old an overview may be: all pages of a tenant that ask within this time share one reading."""


def routes(views: Sequence[OperatorView]) -> list[Route]:
    """The routes, over the views of all features."""
    replies: dict[tuple[str, bool], CachedValue[Reply]] = {}

    async def read(request: HttpRequest) -> Reply:
        parts, unavailable = await read_each(views, lambda view: view.rows(request))
        rows = [row for part in parts for row in part.rows]
        left_out = sum(part.left_out for part in parts)
        return reply(api.Overview(rows, unavailable, left_out))

    async def overview(request: HttpRequest) -> Reply:
        """Every open page asks for it every two seconds."""
        # One for each tenant of the settings, with and without `admin`: they are few.
        seen_by = audience(request)
        cached = replies.get(seen_by)
        if cached is None:
            cached = replies[seen_by] = CachedValue(FRESH_S)
        return await cached.get(lambda: read(request))

    async def failures(request: HttpRequest, query: api.FailureFilter) -> api.Failures:
        parts, unavailable = await read_each(
            views, lambda view: view.failures(request, query.hours, query.tenant)
        )
        kinds = [kind for part in parts for kind in part.kinds]
        kinds.sort(key=lambda kind: (-kind.count, -kind.last_ts))
        return api.Failures(
            query.hours,
            sum(kind.count for kind in kinds),
            kinds,
            unavailable,
            sum(part.scanned for part in parts),
            sum(part.total for part in parts),
        )

    async def search(request: HttpRequest, query: api.SearchText) -> api.Search:
        text = query.q.strip()
        parts, unavailable = await read_each(views, lambda view: view.search(request, text))
        return api.Search(
            [found for part in parts for found in part.found],
            sum(part.scanned for part in parts),
            sum(part.total for part in parts),
            unavailable,
        )

    return [
        serve(api.OVERVIEW, overview),
        serve(api.FAILURES, failures),
        serve(api.SEARCH, search),
    ]
