"""A span of OpenTelemetry around each request that may make jobs (O-5).

Applied by wiring where traces are wanted, around the whole gateway. What it hands on is the same
request with the span's own `traceparent`, so the routes need not know of it: they put the header
into the job as they always do. Requests that only read have no span: a stream of events is open
for hours.
"""

from typing import Final

from opentelemetry import trace
from opentelemetry.propagate import extract, inject
from opentelemetry.trace import SpanKind, StatusCode

from jobwire.gateway.request import ASGIApp, Message, Receive, Send

_HEADER: Final = b"traceparent"
_STATE: Final = b"tracestate"


def traced(app: ASGIApp) -> ASGIApp:
    """The same application, with spans."""
    tracer = trace.get_tracer("jobwire.gateway")

    async def answer(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        came = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in headers
            if name in (_HEADER, _STATE)
        }
        with tracer.start_as_current_span(
            f"POST {_place(scope['path'])}", extract(came), SpanKind.SERVER
        ) as span:
            goes: dict[str, str] = {}
            inject(goes)
            kept = [header for header in headers if header[0] not in (_HEADER, _STATE)]
            scope["headers"] = [*kept, *((k.encode(), v.encode()) for k, v in goes.items())]

            async def watched(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status: int = message["status"]
                    span.set_attribute("http.response.status_code", status)
                    if status >= 500:
                        span.set_status(StatusCode.ERROR)
                await send(message)

            await app(scope, receive, watched)

    return answer


def _place(path: str) -> str:
    """The first two steps of a path: few enough to be a name."""
    return "/".join(path.split("/")[:3])
