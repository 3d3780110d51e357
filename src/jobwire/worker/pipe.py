"""The messages between a worker (`process_pool.py`) and its child processes (`process_main.py`).

Plain data in JSON, each message after its length: neither side executes what it receives. All text
is escaped to ASCII, since ids, names and payloads of foreign producers may contain lone surrogates,
which have no UTF-8.
"""

import contextlib
import json
import socket
import struct
import threading
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from jobwire.job.engine import StepRules, Use
from jobwire.job.messages import Children, JobId, JobInfo, Json, ParentJob, Report
from jobwire.log import LoggingSettings
from jobwire.worker.outcomes import Ending
from jobwire.worker.reports import ReportSink

_HEAD: Final = struct.Struct("!I")

# ── from the worker ──────────────────────────────────────────────────────────────────────────────


class LogConfig(msgspec.Struct, tag=True):
    """The worker's logging settings."""

    service: str
    settings: LoggingSettings


class Start(msgspec.Struct, tag=True):
    """Run this function for this job."""

    module: str
    path: str
    """The file of the main program, if the function is defined there; else empty."""
    function: str
    job_id: str
    source: str
    task: str
    payload_json: str
    attempt: int
    deliveries: int
    created_ms: int
    tenant: str
    traceparent: str
    trace: str = ""
    """The traceparent of the worker's span of this run; empty without tracing."""
    uses: frozenset[Use] = frozenset()
    reserved_kinds: frozenset[str] = frozenset()
    any_progress: bool = False
    max_result_bytes: int = 0
    step_rules: StepRules | None = None
    record: dict[str, str] = {}
    """The fields of the job's record."""
    now_ms: int = 0
    """The server's time."""
    names: dict[str, int] = {}
    """The names that the middleware has used in the record."""
    opts_json: str = "{}"
    priority: int = 0
    parent: tuple[str, str] | None = None
    reported: bool = False
    lifespan: tuple[str, str, str] | None = None
    """Module, path and name of the App's lifespan, which the child enters before its first job."""

    @staticmethod
    def of(
        job: JobInfo,
        module: str,
        path: str,
        function: str,
        trace: str,
        sink: ReportSink,
        lifespan: tuple[str, str, str] | None,
    ) -> "Start":
        payload_json = json.dumps(job.payload)
        rest = (job.attempt, job.deliveries, job.created_ms, job.tenant, job.traceparent, trace)
        kinds = (frozenset(sink.uses), frozenset(sink.reserved_kinds))
        record = (sink.steps.rules, sink.steps.fields, sink.steps.now_ms, sink.steps.names)
        of_sink = (*kinds, sink.any_progress, sink.max_result_bytes, *record)
        head = (module, path, function, job.id, job.source, job.task, payload_json)
        wire = (json.dumps(dict(job.opts)), job.priority, job.parent, job.reported)
        return Start(*head, *rest, *of_sink, *wire, lifespan)

    def job(self) -> JobInfo:
        """The job, as the handler's context shows it."""
        payload = cast(Json, json.loads(self.payload_json))
        rest = (self.attempt, self.deliveries, self.created_ms, self.tenant, self.traceparent)
        opts = cast("dict[str, Json]", json.loads(self.opts_json))
        parent = ParentJob(*self.parent) if self.parent else None
        head = (JobId(self.job_id), self.source, self.task, payload)
        return JobInfo(*head, *rest, opts, self.priority, parent, self.reported)


class ReportAck(msgspec.Struct, tag=True):
    """The answer to a ReportMessage: accepted, or the job is over."""

    ok: bool


class ChildrenMessage(msgspec.Struct, tag=True):
    """The answer to a ChildrenRequest; `error` instead where they could not be read."""

    values: dict[str, Any]
    failed: dict[str, str]
    ignored: dict[str, str]
    pending: list[str]
    error: str = ""

    @staticmethod
    def of(children: Children) -> "ChildrenMessage":
        return ChildrenMessage(
            dict(children.values),
            dict(children.failed),
            dict(children.ignored),
            list(children.pending),
        )

    def answer(self) -> Children | str:
        """The children, or why they could not be read."""
        return self.error or Children(self.values, self.failed, self.ignored, self.pending)


class RecordAck(msgspec.Struct, tag=True):
    """The answer to a RecordMessage: why it was not written, empty if it was; None: the job is
    over."""

    error: str | None
    code: str = ""
    """With a code the job fails."""


class Interrupt(msgspec.Struct, tag=True):
    """Stop the handler."""


ToChild = LogConfig | Start | ReportAck | ChildrenMessage | RecordAck | Interrupt

# ── from the child ───────────────────────────────────────────────────────────────────────────────


class Taken(msgspec.Struct, tag=True):
    """The answer to a Start: from now on the handler may run."""


class ReportMessage(msgspec.Struct, tag=True):
    """A report; the next one only after its ReportAck."""

    report: Report


class ChildrenRequest(msgspec.Struct, tag=True):
    """Read the job's children; answered by a ChildrenMessage."""


class RecordMessage(msgspec.Struct, tag=True):
    """Write a field of the job's record, or submit a child; answered by a RecordAck."""

    field: str
    value: str
    kind: str


class RestartTimeout(msgspec.Struct, tag=True):
    """Count the job's timeout from now; has no answer."""


class Ended(msgspec.Struct, tag=True):
    """How the handler ended; the process is ready for the next job."""

    ending: Ending
    partial_json: str
    names: dict[str, int] = {}
    """The names that it and the middleware have used in the record."""


FromChild = Taken | ReportMessage | ChildrenRequest | RecordMessage | RestartTimeout | Ended

T = TypeVar("T")


class Pipe(Generic[T]):
    """One end of the pipe. Any thread may send, one thread may receive."""

    def __init__(self, sock: socket.socket, message_types: object) -> None:
        self._sock = sock
        self._message_types = cast("type[T]", message_types)
        self._sending = threading.Lock()

    def send(self, message: msgspec.Struct) -> None:
        """Send the whole message; OSError if the other end is closed."""
        raw = _encode(message)
        with self._sending:
            self._sock.sendall(raw)

    def try_send(self, message: msgspec.Struct) -> None:
        """Send a short message if that is possible without waiting; else drop it."""
        if self._sending.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):
                    self._sock.send(_encode(message), socket.MSG_DONTWAIT)
            finally:
                self._sending.release()

    def receive(self) -> T | None:
        """The next message; None if the other end is closed. ValueError if it is not one."""
        head = self._exactly(_HEAD.size)
        raw = head and self._exactly(_HEAD.unpack(head)[0])
        return msgspec.convert(json.loads(raw), self._message_types) if raw else None

    def fileno(self) -> int:
        return self._sock.fileno()

    def block(self) -> None:
        """Receive waits. uvloop makes a socket that it watches non-blocking, for good."""
        self._sock.setblocking(True)

    def is_closed(self) -> bool:
        """The other end is closed, and all it has sent was received. Does not wait."""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._sock.close()

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            try:
                part = self._sock.recv(min(size, 1 << 20))
            except OSError:
                return b""
            if not part:
                return b""
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _encode(message: msgspec.Struct) -> bytes:
    raw = json.dumps(msgspec.to_builtins(message)).encode()
    return _HEAD.pack(len(raw)) + raw
