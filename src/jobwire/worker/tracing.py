"""An OpenTelemetry span around each run of a handler, child of the submitter's span (O-5).

Applied by `programs` if tracing is configured. The span is current while the handler runs, so the
handler's calls (instrumented HTTP clients, our own client) belong to the trace.

For a handler with `process=True` the worker makes the span around the run and the child process
continues it. Spans of the handler itself are exported by what its own module sets up.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from opentelemetry import context, trace
from opentelemetry.propagate import extract, inject
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer

from jobwire.job.errors import (
    Fail,
    JobSuspended,
    Postpone,
    RateLimit,
    Retry,
    WaitForChildren,
)
from jobwire.job.messages import JobInfo
from jobwire.worker.app import App, Handler
from jobwire.worker.context import Context
from jobwire.worker.outcomes import (
    ChildrenAwaited,
    Crashed,
    Ending,
    PermanentFailure,
    PostponeRequested,
    ProcessResult,
    RateLimitRequested,
    RetryRequested,
    Returned,
    SuspendRequested,
)
from jobwire.worker.reports import ReportSink
from jobwire.worker.signature import HandlerKind

_HEADER: Final = "traceparent"


def traced(app: App) -> App:
    """The same app with a span around each run of a handler."""
    tracer = trace.get_tracer("jobwire.worker")
    return app.wrapped(lambda handler: _traced(handler, tracer))


def _traced(handler: Handler, tracer: Tracer) -> Handler:
    if handler.kind is HandlerKind.PROCESS:
        return replace(handler, around=partial(_run_in_process, tracer))
    arguments, function = handler.signature.arguments, handler.function

    async def run(ctx: Context[Any]) -> object:
        with _span(tracer, ctx.job):
            return await function(*arguments(ctx))

    def run_in_thread(ctx: Context[Any]) -> object:
        with _span(tracer, ctx.job):
            return function(*arguments(ctx))

    return handler.with_function(run if handler.kind is HandlerKind.ASYNC else run_in_thread)


def _run_in_process(
    tracer: Tracer, job: JobInfo, _: ReportSink, run: Callable[[str], ProcessResult]
) -> ProcessResult:
    with _span(tracer, job) as span:
        headers: dict[str, str] = {}
        inject(headers)
        result = run(headers.get(_HEADER, ""))
        if result.stopped:
            span.set_attribute("jobwire.stopped", True)
        else:
            _record_ending(span, result.ending)
        return result


def _record_ending(span: Span, ending: Ending) -> None:
    match ending:
        case Returned() | PostponeRequested() | RateLimitRequested() | ChildrenAwaited():
            pass
        case SuspendRequested():
            span.set_attribute("jobwire.suspended", True)
        case PermanentFailure(code, message) | RetryRequested(code, message):
            span.set_attribute("jobwire.code", code)
            span.set_status(StatusCode.ERROR, message)
        case Crashed(message, detail):
            span.add_event("exception", {"exception.stacktrace": detail})
            span.set_status(StatusCode.ERROR, message)


@contextlib.contextmanager
def current_span(trace: str) -> Generator[None]:
    """In the child process: calls inside belong to the worker's span."""
    token = context.attach(extract({_HEADER: trace}))
    try:
        yield
    finally:
        context.detach(token)


@contextlib.contextmanager
def _span(tracer: Tracer, job: JobInfo) -> Generator[Span]:
    parent = extract({_HEADER: job.traceparent}) if job.traceparent else None
    attributes = {
        "messaging.system": "jobwire",
        "messaging.destination.name": job.source,
        "messaging.operation.type": "process",
        "messaging.message.id": job.id,
        "jobwire.task": job.task,
        "jobwire.attempt": job.attempt,
    }
    with tracer.start_as_current_span(
        f"process {job.task}",
        parent,
        SpanKind.CONSUMER,
        attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except asyncio.CancelledError:
            span.set_attribute("jobwire.stopped", True)
            raise
        except JobSuspended:
            span.set_attribute("jobwire.suspended", True)
            raise
        except (Postpone, RateLimit, WaitForChildren):
            raise
        except (Retry, Fail) as signal:
            span.set_attribute("jobwire.code", signal.code)
            span.set_status(StatusCode.ERROR, signal.message)
            raise
        except Exception as error:
            span.record_exception(error)
            span.set_status(StatusCode.ERROR, type(error).__name__)
            raise
