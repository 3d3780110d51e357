"""The table of routes, which finds them by one walk over the segments of the path; and hot routes.

A hot route is an async function of an `HttpRequest`. It returns a `Reply`, or None after it has
sent the response itself (an event stream). Routes of operations (`route`) are in the same table.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from jobwire.api.operation import Method
from jobwire.api.problems import ProblemKind
from jobwire.gateway.access import Access, check_access
from jobwire.gateway.route import Endpoint, Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Doc:
    """A hot route in the OpenAPI document.

    `body` and `answer` are msgspec types (or None) of the request and the response; `body_example`
    and `example` are values of these types, or the same as JSON has it. `problems` are the kinds of
    this route besides the common ones.
    """

    summary: str
    tag: str
    body: object = None
    body_example: object = None
    answer: object = None
    example: object = None
    status: int = 200
    also: Mapping[int, str] = field(default_factory=dict[int, str])
    """Other success statuses, and what each of them means."""
    media_type: str = "application/json"
    binary: Sequence[str] = ()
    """The media types of a request body that is not JSON, for example `("image/jpeg",)`."""
    hidden: bool = False
    """Not in the OpenAPI document: files of a page."""
    description: str = ""
    problems: Sequence[ProblemKind] = ()
    error: object = None
    """The msgspec type of errors in the form of another API, sent as `application/json`."""
    errors: Mapping[int, str] = field(default_factory=dict[int, str])
    """The statuses of such errors besides those of `problems`, and what each of them means."""
    parameters: Sequence["RouteParameter"] = ()


@dataclass(frozen=True, slots=True)
class RouteParameter:
    """A query parameter or a header of a hot route."""

    name: str
    place: Literal["query", "header"]
    description: str
    kind: object = str
    example: object = None


@dataclass(frozen=True, slots=True)
class HotRoute:
    """`HotRoute("GET", "/v1/jobs/{id}", "read", endpoint, Doc(…))`.

    Path parameters are in `request.params`, in order. `stream` marks an event stream, which may be
    opened with a stream token. `max_body` 0 is the gateway's limit. `cors` allows calls by pages of
    the origins in `gateway.cors_origins`.
    """

    method: Method
    path: str
    access: Access
    endpoint: Endpoint
    doc: Doc
    stream: bool = False
    max_body: int = 0
    cors: bool = False

    def __post_init__(self) -> None:
        check_access(self.label, self.access)

    @property
    def label(self) -> str:
        return f"{self.method} {self.path}"


AnyRoute = HotRoute | Route
_PARAMETER: Final = "/"  # no segment of a path can look like this


@dataclass(slots=True)
class _Node:
    children: dict[str, "_Node"] = field(default_factory=dict[str, "_Node"])
    by_method: dict[str, AnyRoute] = field(default_factory=dict[str, AnyRoute])


class RouteTable:
    """All routes, by path and method. A literal segment hides a parameter at its position, whatever
    the method: ValueError for an operation that does not say so (`Operation.hides`)."""

    def __init__(self, routes: Iterable[AnyRoute]) -> None:
        self.routes = tuple(routes)
        self._root = _Node()
        # Most paths have no parameters: one look-up finds them.
        self._plain: dict[str, dict[str, AnyRoute]] = {}
        for route in self.routes:
            self._add(route)
        for route in self.routes:
            if isinstance(route, Route) and not route.operation.hides:
                self._refuse_hiding(route)

    def _add(self, route: AnyRoute) -> None:
        node = self._root
        for name in _segments(route):
            node = node.children.setdefault(name, _Node())
        if route.method in node.by_method:
            raise ValueError(f"{route.label} is declared twice")
        node.by_method[route.method] = route
        if route.method == "GET":
            # The same response; `response_cycle` omits the body.
            node.by_method["HEAD"] = route
        if "{" not in route.path:
            self._plain[route.path] = node.by_method

    def _refuse_hiding(self, route: Route) -> None:
        node = self._root
        for name in _segments(route):
            if name != _PARAMETER and _PARAMETER in node.children:
                raise ValueError(
                    f"{route.label}: {name!r} hides a path with a parameter in its place; declare "
                    "hides=True if the parameter never has this value"
                )
            node = node.children[name]

    def find(self, path: str) -> tuple[dict[str, AnyRoute], tuple[str, ...]]:
        """The routes of a path, by method, and its path parameters."""
        plain = self._plain.get(path)
        if plain is not None:
            return plain, ()
        node = self._root
        params: list[str] = []
        for segment in path.split("/"):
            child = node.children.get(segment)
            if child is None:
                child = node.children.get(_PARAMETER)
                if child is None or not segment:
                    return {}, ()
                params.append(segment)
            node = child
        return node.by_method, tuple(params)


def _segments(route: AnyRoute) -> Iterable[str]:
    for segment in route.path.split("/"):
        yield _PARAMETER if segment.startswith("{") else segment
