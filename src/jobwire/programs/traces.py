"""OpenTelemetry, if its own variables enable it and the extra is installed (O-5).

`OTEL_EXPORTER_OTLP_ENDPOINT` (or `…_TRACES_ENDPOINT`) enables traces; the other variables of
OpenTelemetry apply. A program that has configured OpenTelemetry keeps its provider.
"""

import contextlib
import os
from collections.abc import Generator
from typing import Final

from jobwire.log import component

_log = component("traces")
_ENABLING: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def enabled() -> bool:
    """Whether the environment enables traces."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return any(os.environ.get(name) for name in _ENABLING)


@contextlib.contextmanager
def traces(service: str) -> Generator[bool]:
    """Export spans inside the block, flush at its end; yields whether traces are enabled."""
    if not enabled():
        yield False
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        _log.warning("traces not exported; install them: pip install 'jobwire[otel]'")
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
