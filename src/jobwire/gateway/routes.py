"""Hot routes: plain ASGI beside FastAPI's, in the same app and the same OpenAPI document.

A hot route is an async function of a `Call`. It returns a `Reply`, or None after it has spoken
for itself (an event stream). Declared by rooms, found here by one walk over the path's segments.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from jobwire.gateway.auth import Scope
from jobwire.gateway.problems import ProblemKind
from jobwire.gateway.request import HttpRequest, Reply

Endpoint = Callable[[HttpRequest], Awaitable[Reply | None]]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Doc:
    """What the OpenAPI document says about a hot route.

    `body` and `answer` are msgspec types (or None); `body_example` and `example` are shown to
    readers and must fit them. `problems` are the route's own kinds, beyond those of the shell.
    """

    summary: str
    tag: str
    body: object = None
    body_example: object = None
    answer: object = None
    example: object = None
    status: int = 200
    also: Mapping[int, str] = field(default_factory=dict[int, str])
    """Other statuses with the same answer, and what each of them means."""
    media_type: str = "application/json"
    description: str = ""
    problems: Sequence[ProblemKind] = ()
    parameters: Sequence["RouteParameter"] = ()


@dataclass(frozen=True, slots=True)
class RouteParameter:
    """A query parameter or a header that a hot route understands."""

    name: str
    place: Literal["query", "header"]
    description: str
    kind: object = str
    example: object = None


@dataclass(frozen=True, slots=True)
class HotRoute:
    """`HotRoute("GET", "/v1/jobs/{id}", "read", endpoint, Doc(…))`.

    What stands in the places of the path is in `call.params`, in order. `stream` marks an event
    stream: it may be opened with a stream token. `max_body` 0 means the gateway's own limit.
    """

    method: Method
    path: str
    scope: Scope
    endpoint: Endpoint
    doc: Doc
    stream: bool = False
    max_body: int = 0

    @property
    def label(self) -> str:
        return f"{self.method} {self.path}"


_PLACE: Final = "/"  # no segment of a path can look like this


@dataclass(slots=True)
class _Node:
    children: dict[str, "_Node"] = field(default_factory=dict[str, "_Node"])
    by_method: dict[str, HotRoute] = field(default_factory=dict[str, HotRoute])


class RouteTable:
    """All hot routes, by path and method. A literal segment hides a place at the same position."""

    def __init__(self, routes: Iterable[HotRoute]) -> None:
        self.routes = tuple(routes)
        self._root = _Node()
        # Most paths have no places: one look-up finds them.
        self._plain: dict[str, dict[str, HotRoute]] = {}
        for route in self.routes:
            self._add(route)

    def _add(self, route: HotRoute) -> None:
        node = self._root
        for segment in route.path.split("/"):
            name = _PLACE if segment.startswith("{") else segment
            node = node.children.setdefault(name, _Node())
        if route.method in node.by_method:
            raise ValueError(f"{route.label} is declared twice")
        node.by_method[route.method] = route
        if route.method == "GET":
            # The same answer; the server keeps its body back.
            node.by_method["HEAD"] = route
        if "{" not in route.path:
            self._plain[route.path] = node.by_method

    def find(self, path: str) -> tuple[dict[str, HotRoute], tuple[str, ...]]:
        """The routes at a path, by method, and what stands in its places."""
        plain = self._plain.get(path)
        if plain is not None:
            return plain, ()
        node = self._root
        params: list[str] = []
        for segment in path.split("/"):
            child = node.children.get(segment)
            if child is None:
                child = node.children.get(_PLACE)
                if child is None or not segment:
                    return {}, ()
                params.append(segment)
            node = child
        return node.by_method, tuple(params)
