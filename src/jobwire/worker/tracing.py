"""A span of OpenTelemetry around each run of a handler, child of whoever submitted the job (O-5).

Applied by wiring where traces are wanted. The span is current while the handler runs, so whatever
the handler calls (instrumented HTTP clients, our own client) carries the trace on.

A handler in a process of its own is left alone: its code runs elsewhere. It finds the trace in
`ctx.job.traceparent`, as every handler does.
"""

import asyncio
import contextlib
from collections.abc import Generator
from dataclasses import replace
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from jobwire.job.errors import Fail, Retry
from jobwire.job.messages import Job
from jobwire.worker.app import App, Handler
from jobwire.worker.context import Context
from jobwire.worker.signature import Kind

_HEADER: Final = "traceparent"


def traced(app: App) -> App:
    """The same app, each run of whose handlers is a span."""
    tracer = trace.get_tracer("jobwire.worker")
    return app.wrapped(lambda handler: _traced(handler, tracer))


def _traced(handler: Handler, tracer: Tracer) -> Handler:
    if handler.kind is Kind.PROCESS:
        return handler
    arguments, function = handler.signature.arguments, handler.function
    # The wrapper takes the context alone; the payload is in it.
    signature = replace(handler.signature, context_at=0, payload_at=None)

    async def run(context: Context[Any]) -> object:
        with _span(tracer, context.job):
            return await function(*arguments(context))

    def run_in_thread(context: Context[Any]) -> object:
        with _span(tracer, context.job):
            return function(*arguments(context))

    wrapper = run if handler.kind is Kind.ASYNC else run_in_thread
    return replace(handler, function=wrapper, signature=signature)


@contextlib.contextmanager
def _span(tracer: Tracer, job: Job) -> Generator[None]:
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
            yield
        except asyncio.CancelledError:
            span.set_attribute("jobwire.stopped", True)
            raise
        except (Retry, Fail) as signal:
            span.set_attribute("jobwire.code", signal.code)
            span.set_status(StatusCode.ERROR, signal.message)
            raise
        except Exception as error:
            span.record_exception(error)
            span.set_status(StatusCode.ERROR, type(error).__name__)
            raise
