"""An OpenTelemetry span around each request that may create jobs (O-5).

`programs` wraps the gateway with it if traces are exported. It replaces the `traceparent` header by
that of the span; the routes store the header in the job in any case. Requests that only read have
no span: an event stream may be open for hours.
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
        received = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in headers
            if name in (_HEADER, _STATE)
        }
        with tracer.start_as_current_span(
            f"POST {_prefix(scope['path'])}", extract(received), SpanKind.SERVER
        ) as span:
            injected: dict[str, str] = {}
            inject(injected)
            kept = [header for header in headers if header[0] not in (_HEADER, _STATE)]
            scope["headers"] = [*kept, *((k.encode(), v.encode()) for k, v in injected.items())]

            async def send_and_record(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status: int = message["status"]
                    span.set_attribute("http.response.status_code", status)
                    if status >= 500:
                        span.set_status(StatusCode.ERROR)
                await send(message)

            await app(scope, receive, send_and_record)

    return answer


def _prefix(path: str) -> str:
    """The first two segments of a path: a span name needs few distinct values."""
    return "/".join(path.split("/")[:3])
