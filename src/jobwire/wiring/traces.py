"""OpenTelemetry, if it is asked for by its own variables and the extra is there (O-5).

`OTEL_EXPORTER_OTLP_ENDPOINT` (or `…_TRACES_ENDPOINT`) switches traces on; all else is as the
variables of OpenTelemetry say. A program that has set up OpenTelemetry by itself keeps its own.
"""

import contextlib
import os
from collections.abc import Generator
from typing import Final

from jobwire.log import component

_log = component("traces")
_SWITCHES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def wanted() -> bool:
    """Whether somebody asked for traces."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return any(os.environ.get(name) for name in _SWITCHES)


@contextlib.contextmanager
def traces(service: str) -> Generator[bool]:
    """Send spans inside, and the last of them at the end; says whether there are any."""
    if not wanted():
        yield False
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        _log.warning("traces are asked for, but the extra is missing: pip install 'jobwire[otel]'")
        yield False
        return
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        yield True
        return
    name = os.environ.get("OTEL_SERVICE_NAME") or f"jobwire-{service}"
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield True
    finally:
        provider.shutdown()
