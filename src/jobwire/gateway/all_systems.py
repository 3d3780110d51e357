"""Reads the views of all systems at once.

A system whose backend does not answer in time is named in `unavailable`, and the others are shown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar, cast

from jobwire.api.fleet import UnavailableSystem
from jobwire.gateway.operator_view import OperatorView, PartialAnswer
from jobwire.gateway.request import HttpRequest
from jobwire.job.errors import BackendUnavailable

T = TypeVar("T")
_TIMEOUT_S: Final = 3.0
"""How long one system may take; the others are shown without it."""


async def read_each(
    views: Sequence[OperatorView], read: Callable[[OperatorView], Awaitable[T]]
) -> tuple[list[T], list[UnavailableSystem]]:
    """The answers of the systems that answer, and the others by name."""

    partial: list[UnavailableSystem] = []

    async def one(view: OperatorView) -> T | UnavailableSystem:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await read(view)
        except PartialAnswer as error:
            partial.append(UnavailableSystem(view.system, error.detail))
            return cast(T, error.part)
        except BackendUnavailable as error:
            return UnavailableSystem(view.system, error.message)
        except TimeoutError:
            return UnavailableSystem(view.system, f"no answer within {_TIMEOUT_S:g} s")

    read_all = [await one(views[0])] if len(views) == 1 else await asyncio.gather(*map(one, views))
    answers = [each for each in read_all if not isinstance(each, UnavailableSystem)]
    silent = [each for each in read_all if isinstance(each, UnavailableSystem)]
    return answers, [*silent, *partial]


def audience(request: HttpRequest) -> tuple[str, bool]:
    """What decides which rows a caller sees: its tenant, and whether its key has `admin`."""
    return request.principal.tenant, "admin" in request.principal.scopes
