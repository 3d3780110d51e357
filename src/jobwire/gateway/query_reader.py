"""Reads the query parameters of a request as the Struct that its operation declares.

Strictly: a number is ASCII digits, and every fault is one problem with the name of the parameter.
Of a parameter that is given several times the last value counts; unknown parameters are ignored.
"""

from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect

from jobwire.gateway.problems import Problem, invalid
from jobwire.gateway.request import HttpRequest
from jobwire.text import msgspec_fault

_MAX_DIGITS: Final = 16


class QueryReader:
    """The reader of one operation. TypeError if a member has a type that no text can have."""

    def __init__(self, struct: type[msgspec.Struct]) -> None:
        self._struct = struct
        self._numbers: set[str] = set()
        self._faults: dict[str, str] = {}
        members = inspect.type_info(struct)
        assert isinstance(members, inspect.StructType)
        for member in members.fields:
            self._describe(member.encode_name, member.type)
        self._required = {each.encode_name for each in members.fields if each.required}
        # Of requests without a query: the same instance is used again.
        self._default = None if self._required else struct()

    def _describe(self, name: str, kind: inspect.Type) -> None:
        """Remember how a parameter is checked, and the text of its fault."""
        fault = ""
        if isinstance(kind, inspect.Metadata):
            extra = cast("Mapping[str, object]", kind.extra or {})  # untyped
            fault = str(extra.get("fault", ""))
            kind = kind.type
        if isinstance(kind, inspect.UnionType):
            others = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
            kind = others[0] if len(others) == 1 else kind
        if isinstance(kind, inspect.Metadata):
            kind = kind.type
        match kind:
            case inspect.IntType(ge=least, le=most):
                self._numbers.add(name)
                bounds = "" if most is None else f" to {most}"
                text = f"must be a number from {least or 0}{bounds}"
            case inspect.LiteralType(values=values) if all(
                isinstance(each, str) for each in values
            ):
                text = f"must be one of {', '.join(map(str, values))}"
            case inspect.StrType(max_length=longest, pattern=None) if longest is not None:
                text = f"must have at most {longest} characters"
            case inspect.StrType(pattern=pattern):
                text = "" if pattern is None else f"must match {pattern}"
            case _:
                raise TypeError(f"the query parameter {name} is neither str, int nor Literal")
        self._faults[name] = fault or text

    def read(self, request: HttpRequest) -> msgspec.Struct:
        """The parameters of a request; raises Problem."""
        text: bytes = request.scope["query_string"]
        if not text and self._default is not None:
            return self._default
        request.check_query()
        given: dict[str, Any] = dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True))
        for name in self._required - given.keys():
            raise invalid("query", f"/{name}", "is required")
        for name in self._numbers & given.keys():
            digits: str = given[name]
            # Checked as text: msgspec takes `1e1` and `20.0` for whole numbers.
            if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS):
                raise self._fault(name)
            given[name] = int(digits)
        try:
            return msgspec.convert(given, self._struct)
        except msgspec.ValidationError as error:
            raise self._fault(msgspec_fault(error).place.removeprefix(".")) from None

    def _fault(self, name: str) -> Problem:
        return invalid("query", f"/{name}", self._faults[name])
