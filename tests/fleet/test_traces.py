"""One trace from the caller through the gateway and the job into the handler (O-5)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from jobwire.client import JobFailed
from tests.fleet.runner import Fleet
from tests.support import clause, wait_until_sync

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"


class Collector:
    """Receives spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []
        taken_in = self._taken_in

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                taken_in(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_request(self, code: object = "-", size: object = "-") -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=lambda: self._server.serve_forever(poll_interval=0.02), daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _taken_in(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            attributes = {
                each.key: each.value.string_value for each in resource.resource.attributes
            }
            for scope in resource.scope_spans:
                self.spans += [(attributes["service.name"], span) for span in scope.spans]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)


@pytest.fixture
def collector() -> Iterator[Collector]:
    started = Collector()
    yield started
    started.close()


@clause("O-5")
def test_o5_one_trace_joins_caller_gateway_job_and_handler(
    own_fleet: Fleet, collector: Collector
) -> None:
    # Spans are exported without delay.
    wanted = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
    own_fleet.start_gateway(**wanted)
    own_fleet.start_worker(**wanted)
    results: dict[str, dict[str, str]] = {}
    for task in ("trace", "trace-in-thread", "trace-in-process", "fail"):
        answer = httpx.post(
            f"{own_fleet.url}/v1/jobs",
            json={"task": task, "payload": {}},
            headers={"traceparent": f"00-{TRACE}-{CALLER}-01", "prefer": "wait=30"},
            trust_env=False,
            timeout=60,
        )
        results[task] = answer.json()["result"]
    wait_until_sync(lambda: len(collector.spans) == 8, "four requests and four runs")
    assert {span.trace_id.hex() for _, span in collector.spans} == {TRACE}
    requests = {s.span_id.hex(): s for name, s in collector.spans if name == "jobwire-gateway"}
    runs = {s.name: s for name, s in collector.spans if name == "jobwire-worker"}
    assert {span.parent_span_id.hex() for span in requests.values()} == {CALLER}
    assert {span.name for span in requests.values()} == {"POST /v1/jobs"}
    assert all(run.parent_span_id.hex() in requests for run in runs.values())
    for task in ("trace", "trace-in-thread", "trace-in-process"):
        run = runs[f"process {task}"]
        assert results[task]["came"] == f"00-{TRACE}-{run.parent_span_id.hex()}-01"
        assert results[task]["goes"] == f"00-{TRACE}-{run.span_id.hex()}-01"
    failed = runs["process fail"]
    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert failed.status.message == "it was not to be"

    with own_fleet.client() as jobs:
        with pytest.raises(JobFailed):
            jobs.run("trace-in-process", {"fail": True})
        stopped = jobs.submit("trace-in-process", {"wait": True})
        events = jobs.events(stopped.job_id)
        assert next(event for event in events if event.type == "progress")
        jobs.cancel(stopped.job_id)
        assert jobs.wait(stopped.job_id).status == "canceled"
        wait_until_sync(lambda: len(collector.spans) == 13, "three requests and two runs more")
    failed, ended = (span for name, span in collector.spans[8:] if name == "jobwire-worker")
    assert failed.status.message == "not here either"
    assert ended.status.code == Status.STATUS_CODE_UNSET, "a cancel is not an error"
    assert "jobwire.stopped" in {each.key for each in ended.attributes}


@clause("O-5")
def test_o5_without_opentelemetry_the_callers_trace_still_reaches_the_handler(fleet: Fleet) -> None:
    sent = f"00-{TRACE}-{CALLER}-01"
    answer = httpx.post(
        f"{fleet.url}/v1/jobs",
        json={"task": "trace", "payload": {}},
        headers={"traceparent": sent, "prefer": "wait=30"},
        trust_env=False,
        timeout=60,
    )
    assert answer.json()["result"]["came"] == sent


def test_the_client_sends_the_trace_of_its_caller(fleet: Fleet) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("caller") as span, fleet.client() as jobs:
        result = jobs.run("trace")
    context = span.get_span_context()
    ids = (trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id))
    assert str(result["came"]).startswith(f"00-{ids[0]}-{ids[1]}-")
