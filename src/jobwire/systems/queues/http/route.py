"""Routes over the queue server: while it does not answer they are `unavailable`, not `internal`."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from jobwire.api.operation import Operation
from jobwire.gateway.request import Reply
from jobwire.gateway.route import Route, serve
from jobwire.systems.queues.replies import raises_unavailable

A = TypeVar("A")


def queue_route(
    operation: Operation[A], endpoint: Callable[..., Awaitable[A | Reply | None]]
) -> Route:
    """`serve`, for an endpoint that reads or writes queues."""

    @functools.wraps(endpoint)
    async def guarded(*args: Any) -> A | Reply | None:  # as `serve` has checked them
        with raises_unavailable():
            return await endpoint(*args)

    return serve(operation, guarded)
