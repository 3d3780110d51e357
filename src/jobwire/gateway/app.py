"""The ASGI application, built from the routes of all features.

Every request takes the same path: an `HttpRequest` is created, `admission` checks it, the endpoint
of a route answers, and every failure becomes a problem document. Built by `programs`, run by
`server`. Plain ASGI, without a framework.
"""

import re
import time
from collections.abc import Collection, Sequence
from urllib.parse import unquote

import msgspec

from jobwire.api.gateway import OPENAPI
from jobwire.api.problems import NOT_FOUND, OTHER_USER, WRONG_METHOD
from jobwire.gateway import (
    api_page,
    fleet,
    health,
    me,
    metrics,
    openapi,
    overview,
    sse_tokens,
)
from jobwire.gateway.access import SelfAuthenticated, access_name
from jobwire.gateway.accounts import Accounts
from jobwire.gateway.admission import Admission
from jobwire.gateway.auth import Keyring
from jobwire.gateway.cors import Cors
from jobwire.gateway.feature import Feature
from jobwire.gateway.health import Supervised
from jobwire.gateway.keys_file import KeysFollower
from jobwire.gateway.limits import BodyBudget, RequestRate
from jobwire.gateway.local_users import LocalUsers, is_navigation, page
from jobwire.gateway.memory import MemoryBudgets
from jobwire.gateway.metrics import GatewayCollector, HttpMetrics
from jobwire.gateway.problems import Problem, as_problem
from jobwire.gateway.refusal_log import RefusalLog
from jobwire.gateway.request import (
    MOUNT_KEY,
    ClientGone,
    HttpRequest,
    Message,
    Receive,
    Reply,
    Send,
)
from jobwire.gateway.route import Refuse, Route, serve
from jobwire.gateway.route_table import RouteTable
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.sse_connections import SseConnections
from jobwire.gateway.tokens import TokenMaker
from jobwire.job.errors import BackendUnavailable
from jobwire.log import bind, component
from jobwire.net import is_loopback

_log = component("gateway")


class ExposedWithoutKeys(RuntimeError):
    """A route that needs an API key would be served to others without any key."""


class Gateway:
    """The ASGI application."""

    def __init__(
        self,
        settings: GatewaySettings,
        features: Sequence[Feature],
        streams: SseConnections,
        *,
        version: str,
        supervised: Supervised | None = None,
    ) -> None:
        exposed = bool(settings.keys_file) or not is_loopback(settings.host)
        keyring = Keyring(settings.keys, exposed=exposed)
        tokens = TokenMaker(settings.token_secret, settings.token_ttl.total_seconds(), keyring)
        rate = RequestRate(settings.rate_limit, time.monotonic)
        self.body_budget = BodyBudget(MemoryBudgets.of(settings).bodies)
        self._admission = Admission(
            keyring,
            tokens,
            rate,
            settings.max_body_bytes,
            self.body_budget,
            LocalUsers(settings),
        )
        self._cors = Cors(settings.cors_origins)
        self._http_metrics = HttpMetrics()
        self._refusals = RefusalLog()
        self.streams = streams
        self.accounts = Accounts(settings.max_connections)
        """Of the server that runs this gateway, if it is ours."""
        self.keys = KeysFollower(settings, keyring, self.accounts.end)

        checks = [check for feature in features for check in feature.checks]
        remote = [feature.remote_health for feature in features if feature.remote_health]
        collectors = [collector for feature in features for collector in feature.collectors]
        scrapes = {feature.name: feature.scrape for feature in features if feature.scrape}
        own = GatewayCollector(version, streams)
        views = [feature.view for feature in features if feature.view]
        self._table = RouteTable(
            [
                *health.routes(version, checks, supervised, remote),
                metrics.route([self._http_metrics, own, *collectors], scrapes),
                serve(OPENAPI, self._openapi),
                sse_tokens.route(tokens, self._is_stream),
                me.route(
                    version,
                    has_keys=settings.has_keys,
                    read_only=settings.read_only,
                    features=[each.name for each in features if each.routes],
                ),
                *([*overview.routes(views), *fleet.routes(views)] if views else []),
                *api_page.routes(),
                *(
                    route
                    for feature in features
                    for route in feature.routes
                    if not settings.read_only or _only_reads(route)
                ),
            ]
        )
        _refuse_duplicates(self._table.routes)
        if settings.exposed_without_keys:
            _refuse_scopes(settings.host, features)
        document = openapi.document(version, self._table.routes)
        self._document = Reply(msgspec.json.encode(document))

    @property
    def inventory(self) -> list[tuple[str, str, str]]:
        """Every route: method, path, and its scope or `self`."""
        return [
            (route.method, route.path, access_name(route.access)) for route in self._table.routes
        ]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _answer_lifespan(scope, receive, send)
            return
        if scope.get("root_path"):
            scope = _below_mount(scope)
        began_s = time.perf_counter()
        request = HttpRequest(scope, receive, send)
        bind(request_id=request.request_id.decode())
        stream = False
        try:
            self._admission.check_request(request)
            raw_path: bytes | None = scope.get("raw_path")
            if raw_path and b"%" in raw_path and b"%2f" in raw_path.lower():
                by_method, request.params = self._table.find_segments(_segments(scope))
            else:
                by_method, request.params = self._table.find(scope["path"])
            route = by_method.get(scope["method"])
            if route is None:
                preflight = self._cors.preflight(request, by_method) if by_method else None
                if preflight is None:
                    raise self._no_route(request, by_method)
                await request.reply_nothing(preflight)
            else:
                if route.cors:
                    self._cors.allow(request)
                request.route, stream, access = route.label, route.stream, route.access
                if isinstance(access, SelfAuthenticated):
                    await self._admission.verify(request, access, route.max_body)
                else:
                    self._admission.authorize(request, access, route.max_body, stream=stream)
                reply = await route.endpoint(request)
                if reply is not None:
                    await request.reply(reply)
        except Exception as error:  # noqa: BLE001 - every failure becomes a problem document
            await self._fail(request, error)
        finally:
            request.release_body()
            self._http_metrics.count(
                request.route, request.status, None if stream else time.perf_counter() - began_s
            )

    def _no_route(self, request: HttpRequest, other_methods: Collection[str]) -> Problem:
        """405 instead of 404 if the path exists with another method. Without keys only this machine
        learns which paths exist."""
        self._admission.check_local(request)
        if not other_methods:
            return Problem(NOT_FOUND)
        allowed = ", ".join(sorted(other_methods)).encode()
        return Problem(WRONG_METHOD, headers=((b"allow", allowed),))

    async def _fail(self, request: HttpRequest, error: Exception) -> None:
        """Answer with the problem, unless the response is complete or the client has left."""
        if request.finished or isinstance(error, ClientGone):
            return
        problem = self._logged_problem(request, error)
        self._refusals.add(request, problem)
        if request.status:
            request.abort()
        elif problem.kind is OTHER_USER and is_navigation(request):
            await request.reply(page(problem))
        elif (refuse := self._form_of(request.path)) is not None:
            await request.reply(refuse(problem))
        else:
            await request.refuse(problem)

    def _form_of(self, path: str) -> Refuse | None:
        """The form of problems at a path, if it is another API's: for any method, so that 405 has
        it too."""
        by_method, _ = self._table.find(path)
        return next((route.refuse for route in by_method.values() if route.refuse), None)

    def _logged_problem(self, request: HttpRequest, error: Exception) -> Problem:
        """The error as a problem; a server-side failure is logged."""
        problem = as_problem(error)
        route = f"{request.method} {request.path}"
        if isinstance(error, BackendUnavailable):
            # Without a traceback: during an outage every request fails for the same reason.
            _log.warning(
                "request failed route=%(route)s error=%(error)s detail=%(detail)s",
                {"route": route, "error": error.message, "detail": error.detail},
            )
        elif problem.kind.status >= 500 and not isinstance(error, Problem):
            _log.error("request failed route=%(route)s", {"route": route}, exc_info=error)
        return problem

    def _is_stream(self, path: str) -> bool:
        route = self._table.find(path)[0].get("GET")
        return route is not None and route.stream

    async def _openapi(self, _request: HttpRequest) -> Reply:
        return self._document


async def _answer_lifespan(scope: Message, receive: Receive, send: Send) -> None:
    """A server's question whether the application has started and stopped; what the gateway needs
    is opened by the program that builds it."""
    if scope["type"] != "lifespan":
        raise TypeError(f"unsupported ASGI scope type {scope['type']!r}; only http is served")
    for event in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{event}.complete"})


def _below_mount(scope: Message) -> Message:
    """The scope of a gateway that another application has mounted: its paths begin at the mount."""
    mount: str = scope["root_path"].rstrip("/")
    path: str = scope["path"]
    if path == mount or path.startswith(f"{mount}/"):
        path = path.removeprefix(mount) or "/"
    return {**scope, "path": path, "root_path": "", MOUNT_KEY: mount}


def _segments(scope: Message) -> list[str]:
    """Of a path with encoded slashes: these do not separate. Below a mount the server's `raw_path`
    begins with the mount."""
    segments = [unquote(each) for each in scope["raw_path"].decode("latin-1").split("/")]
    mount: str = scope.get(MOUNT_KEY, "")
    if mount and "/".join(segments) == mount + scope["path"]:
        del segments[1 : 1 + mount.count("/")]
    return segments


def _only_reads(route: Route) -> bool:
    """Whether a route changes nothing; a stream token is made by POST with the scope `read`."""
    return route.access == "read" or route.method == "GET"


def _refuse_scopes(host: str, features: Sequence[Feature]) -> None:
    """Without keys, an address that others can reach serves self-authenticated routes only."""
    for feature in features:
        for route in feature.routes:
            if route.access != "public" and not isinstance(route.access, SelfAuthenticated):
                raise ExposedWithoutKeys(
                    f"{host} can be reached by others, there are no API keys, and {route.path} "
                    f"needs the scope {route.access!r}; create a key with `jobwire key` and put it "
                    "into gateway.keys, or listen on 127.0.0.1"
                )


def _refuse_duplicates(routes: Sequence[Route]) -> None:
    seen: set[tuple[str, str]] = set()
    for route in routes:
        shape = (route.method, re.sub(r"\{.*?\}", "{}", route.path))
        if shape in seen:
            raise ValueError(f"{route.label} is declared twice")
        seen.add(shape)
