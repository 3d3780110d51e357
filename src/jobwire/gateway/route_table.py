"""The table of routes, which finds them by one walk over the segments of the path."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from jobwire.gateway.route import Route

_PARAMETER: Final = "/"  # no segment of a path can look like this


@dataclass(slots=True)
class _Node:
    children: dict[str, "_Node"] = field(default_factory=dict[str, "_Node"])
    by_method: dict[str, Route] = field(default_factory=dict[str, Route])


class RouteTable:
    """All routes, by path and method. A literal segment hides a parameter at its position, whatever
    the method: ValueError for an operation that does not say so (`Operation.hides`)."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._root = _Node()
        # Most paths have no parameters: one look-up finds them.
        self._plain: dict[str, dict[str, Route]] = {}
        for route in self.routes:
            self._add(route)
        for route in self.routes:
            if not route.operation.hides:
                self._refuse_hiding(route)

    def _add(self, route: Route) -> None:
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

    def find(self, path: str) -> tuple[dict[str, Route], tuple[str, ...]]:
        """The routes of a path, by method, and its path parameters."""
        plain = self._plain.get(path)
        if plain is not None:
            return plain, ()
        return self.find_segments(path.split("/"))

    def find_segments(self, segments: Iterable[str]) -> tuple[dict[str, Route], tuple[str, ...]]:
        """The same of a path whose segments may contain slashes."""
        node = self._root
        params: list[str] = []
        for segment in segments:
            child = node.children.get(segment)
            if child is None:
                child = node.children.get(_PARAMETER)
                if child is None or not segment:
                    return {}, ()
                params.append(segment)
            node = child
        return node.by_method, tuple(params)


def _segments(route: Route) -> Iterable[str]:
    for segment in route.path.split("/"):
        yield _PARAMETER if segment.startswith("{") else segment
