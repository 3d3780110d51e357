"""Parameters that the FastAPI routes of several wires have: paging, choices.

Query parameters are types of FastAPI routes. They are read strictly: a number is ASCII digits, and
every fault is one problem with the name of the parameter.

    async def jobs(limit: PageSize = DEFAULT_PAGE, status: Annotated[str, one_of(Status)] = "")
"""

import re
from collections.abc import Callable, Collection
from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from jobwire.gateway.prefer import wait_s as wait_s

DEFAULT_PAGE: Final = 50
MAX_PAGE: Final = 200


def one_of(allowed: Collection[str]) -> BeforeValidator:
    """A parameter with one of these values."""
    return _refusing(lambda given: given in allowed, f"must be one of {', '.join(allowed)}")


def matching(pattern: str, message: str) -> BeforeValidator:
    """A parameter that fits a pattern as a whole; `message` is the fault."""
    fits = re.compile(pattern, re.ASCII)
    return _refusing(lambda given: fits.fullmatch(given) is not None, message)


def _refusing(is_valid: Callable[[str], bool], message: str) -> BeforeValidator:
    def check(given: Any) -> Any:  # pydantic: whatever was sent; for a query always text
        if isinstance(given, str) and not is_valid(given):
            raise PydanticCustomError("invalid", "{message}", {"message": message})
        return given

    return BeforeValidator(check)


def _is_page_size(given: str) -> bool:
    return given.isascii() and given.isdigit() and len(given) < 10 and 1 <= int(given) <= MAX_PAGE


PageSize = Annotated[
    int,
    _refusing(_is_page_size, f"must be a number from 1 to {MAX_PAGE}"),
    Query(
        description=f"how many; default {DEFAULT_PAGE}",
        json_schema_extra={"minimum": 1, "maximum": MAX_PAGE, "example": 20},
    ),
]
"""How many resources a page of a list has."""
