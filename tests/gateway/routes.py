"""Routes of tests whose endpoints are functions of the request alone."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from jobwire.api.operation import Method, Operation, Proof, Scope
from jobwire.gateway.access import SelfAuthenticated
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import Route, serve


def route(
    method: Method,
    path: str,
    access: Scope | SelfAuthenticated,
    endpoint: Callable[[HttpRequest], Awaitable[Reply | None]],
    **described: Any,
) -> Route:
    """`described` are further members of the operation. The endpoint reads its path parameters from
    `request.params`, and the body itself."""
    proof = access
    if isinstance(access, SelfAuthenticated):
        proof = Proof(access.scheme, access.security, access.problems)
    described = {"tag": "test", **described}
    operation: Operation[Any] = Operation(method, path, proof, "a route of a test", **described)  # pyright: ignore[reportArgumentType] - narrowed above

    async def call(request: HttpRequest, *_params: str) -> Reply | None:
        return await endpoint(request)

    kind = inspect.Parameter.POSITIONAL_ONLY
    names = ("request", *operation.parameters)
    call.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return serve(
        operation, call, verify=access.verify if isinstance(access, SelfAuthenticated) else None
    )
