"""What one HTTP operation is: a value that the gateway serves, clients call and documents show.

    CANCEL: Final = Operation("POST", "/v1/jobs/{id}/cancel", "submit", "Cancel a job", tag="jobs",
                              answer=CancelAnswer, problems=(JOB_NOT_FOUND,))

An operation describes; it has no endpoint and no verifier. `gateway/route.py` serves it. Types are
msgspec's. What is wrong with an operation is a TypeError when its module is imported.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import NoneType
from typing import Final, Generic, Literal, TypeVar, get_args
from urllib.parse import quote, urlencode

import msgspec

from jobwire.api.problems import INVALID_JSON, ProblemKind

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Scope = Literal["public", "submit", "read", "signal", "admin"]
"""What an operation requires: `public` needs no key, `admin` includes the other two."""

A = TypeVar("A")
_SCOPES: Final[tuple[str, ...]] = get_args(Scope)
_PARAMETER: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Proof:
    """The access of an operation whose requests carry their own proof instead of an API key: a
    webhook's signature, an upload token. Its route brings the verifier: `serve(…, verify=…)`."""

    scheme: str
    """The name of the proof in the OpenAPI document, for example `uploadToken`."""
    security: Mapping[str, object]
    """The OpenAPI security scheme, for example `{"type": "http", "scheme": "bearer"}`."""
    problems: Sequence[ProblemKind] = ()
    """The answers to a request without a valid proof."""


@dataclass(frozen=True, slots=True)
class Header:
    """A header that the operation reads. It is only documented: the endpoint reads it from
    `request.headers`."""

    name: str
    description: str
    type: object = str
    example: object = None


@dataclass(frozen=True, slots=True)
class Either:
    """A body of one of two types: of the type `given` if the object has the member `by`, else of
    the type `other`. msgspec cannot decide between two Structs without a tag."""

    by: str
    given: type[msgspec.Struct]
    other: type[msgspec.Struct]


@dataclass(frozen=True)  # not slots: Python 3.11 could not make an `Operation[None](…)`
class Operation(Generic[A]):
    """One method of one path; `A` is the type of its answer.

    A JSON request body is declared in one of two ways: `body` is decoded before the endpoint runs,
    `takes` is only documented, for an endpoint that reads the bytes itself. `binary` is a body that
    is not JSON.
    """

    method: Method
    path: str
    """With its parameters: `/v1/jobs/{id}`."""
    access: Scope | Proof
    summary: str
    _: KW_ONLY
    tag: str
    """The group of operations in the documents."""
    description: str = ""

    query: type[msgspec.Struct] | None = None
    """The query parameters, one member each, of type `str`, `int` or `Literal`, or one of them and
    None. `Meta` has description, bounds and `examples`. `Meta(extra={"fault": "is not …"})` is the
    text for an invalid value. Unknown parameters are ignored."""
    parameter_types: Mapping[str, object] = field(default_factory=dict[str, object])
    """The types of path parameters that are not any text. They are only documented: the endpoint
    checks them, and answers as if there were no such resource."""
    headers: Sequence[Header] = ()
    body: object = None
    """A msgspec type, or `Either`. A type that allows None is of a request that may come without
    a body."""
    takes: object = None
    """The same, only documented: a batch of items, a signed webhook."""
    body_example: object = None
    binary: Sequence[str] = ()
    """The media types of a body that is not JSON, for example `("image/jpeg",)`."""
    max_body: int = 0
    """In bytes; 0 is the gateway's limit."""
    too_deep: ProblemKind = INVALID_JSON
    """The answer to a body that is nested too deeply."""

    answer: type[A] = NoneType  # pyright: ignore[reportAssignmentType] - without one, A is None
    example: object = None
    status: int = 200
    """204: there is no body."""
    also: Mapping[int, str] = field(default_factory=dict[int, str])
    """Other statuses with the same answer (204 and 304: without), and what each of them means."""
    media_type: str = "application/json"

    problems: Sequence[ProblemKind] = ()
    """Besides those that follow from access, body, query and `stream`."""
    error: object = None
    """The type of errors in the form of another API; see `serve(…, refuse=…)`."""
    errors: Mapping[int, str] = field(default_factory=dict[int, str])
    """The statuses of such errors besides those of `problems`, and what each of them means."""

    stream: bool = False
    """An event stream: it may be opened with a stream token."""
    cors: bool = False
    """Pages of the origins in `gateway.cors_origins` may call it."""
    hidden: bool = False
    """Not in the OpenAPI document: files of a page."""
    hides: bool = False
    """A literal segment of this path is in the place of a parameter of other paths, which cannot
    have this value then: `/v1/jobs/queues` hides `/v1/jobs/{id}` and all below it. The gateway does
    not start if an operation hides another one without saying so."""

    def __post_init__(self) -> None:
        if not isinstance(self.access, Proof) and self.access not in _SCOPES:
            known = ", ".join(_SCOPES)
            raise TypeError(f"{self.label}: {self.access!r} is neither a scope ({known}) nor Proof")
        bodies = [each for each in (self.body, self.takes, self.binary) if each not in (None, ())]
        if len(bodies) > 1:
            raise TypeError(f"{self.label}: only one of body, takes and binary can be declared")
        if len(set(self.parameters)) != len(self.parameters):
            raise TypeError(f"{self.label}: a path parameter is declared twice")
        if unknown := self.parameter_types.keys() - set(self.parameters):
            raise TypeError(f"{self.label} has no path parameter {', '.join(sorted(unknown))}")

    @property
    def label(self) -> str:
        """The method and the path, for messages and metrics."""
        return f"{self.method} {self.path}"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the path parameters, in order."""
        return tuple(_PARAMETER.findall(self.path))

    @property
    def body_required(self) -> bool:
        """Whether a request must have a body, if the operation declares one."""
        return NoneType not in get_args(self.body)

    def url(self, *places: str, **query: object) -> str:
        """The path and query of a request: `GET.url("7", limit=5)` is `/v1/jobs/7?limit=5`.

        The values of the path are quoted, so that none can add a segment. A query parameter that
        is None is left out.
        """
        names = self.parameters
        if len(places) != len(names):
            raise TypeError(f"{self.label} has the parameters {names}, not {places}")
        values = iter(places)
        path = _PARAMETER.sub(lambda _: quote(next(values), safe=""), self.path)
        if unknown := query.keys() - set(self.query.__struct_fields__ if self.query else ()):
            raise TypeError(f"{self.label} has no query parameter {', '.join(sorted(unknown))}")
        given = {name: value for name, value in query.items() if value is not None}
        return f"{path}?{urlencode(given)}" if given else path
