"""Child processes for `process=True`: the worker's side.

A process is spawned, never forked: a fork of a program with threads copies locks that no thread of
the copy releases. It runs one job at a time and is reused for the next. It dies with the worker,
also when the worker is killed (`jobwire.spawn`).

Called by the runner; `run` blocks a thread.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from jobwire.job.errors import Fail
from jobwire.job.messages import JobInfo
from jobwire.log import as_set_up
from jobwire.spawn import ChildProcess, how_ended, spawn
from jobwire.worker.outcomes import Crashed, ProcessResult
from jobwire.worker.pipe import (
    ChildrenMessage,
    ChildrenRequest,
    Ended,
    FromChild,
    Interrupt,
    LogConfig,
    Pipe,
    RecordAck,
    RecordMessage,
    ReportAck,
    ReportMessage,
    Start,
)
from jobwire.worker.reports import ReportSink

_GRACE_S: Final = 2.0


class ProcessPool:
    """The idle processes. Used on the event loop only."""

    def __init__(self) -> None:
        self._idle: list[HandlerProcess] = []
        self._closed = False

    def acquire(self) -> "HandlerProcess":
        """A process for one job, new if none is idle; `release` it when the job has ended."""
        return self._idle.pop() if self._idle else HandlerProcess()

    def release(self, process: "HandlerProcess") -> None:
        """The process's job has ended and can no longer be interrupted."""
        if not process.usable:
            return
        if self._closed:
            process.close()
        else:
            self._idle.append(process)

    def close(self) -> None:
        """End idle processes; the others end with their job or with this process."""
        self._closed = True
        for process in self._idle:
            process.hang_up()  # all of them first, so that they end at the same time
        while self._idle:
            self._idle.pop().close()


class HandlerProcess:
    """One child process; started with its first job."""

    def __init__(self) -> None:
        self._process: ChildProcess | None = None
        self._pipe: Pipe[FromChild] | None = None
        self.usable = True
        self.has_lifespan = False
        """The child has a lifespan to leave when it ends."""

    def run(
        self,
        function: Callable[..., object],
        job: JobInfo,
        sink: ReportSink,
        trace: str = "",
        lifespan: Callable[..., object] | None = None,
    ) -> ProcessResult:
        """Run one job; blocks until it has ended."""
        detail = ""
        try:
            entered = None
            if lifespan is not None:
                entered = (*_location_of(lifespan), lifespan.__qualname__)
                self.has_lifespan = True
            location = (*_location_of(function), function.__qualname__)
            pipe = self._started(sink)
            _send(pipe, Start.of(job, *location, trace, sink, entered), sink)
            while message := pipe.receive():
                if isinstance(message, Ended):
                    sink.steps.names.update(message.names)
                    return ProcessResult(message.ending, message.partial_json, sink.stopped)
                if isinstance(message, ReportMessage):
                    _send(pipe, ReportAck(_forward(message, sink)), sink)
                elif isinstance(message, ChildrenRequest):
                    _send(pipe, _children_of(sink), sink)
                elif isinstance(message, RecordMessage):
                    _send(pipe, _record(message, sink), sink)
                else:
                    sink.restart_timeout()
        except Exception as error:  # noqa: BLE001 - whatever happens, the job ends
            detail = f"{type(error).__name__}: {error}"
        ending = Crashed(f"the handler's process {self._reap()}", detail)
        return ProcessResult(ending, "", sink.stopped)

    def interrupt(self) -> None:
        """Ask the handler to stop, after `sink.stop`. Called on the event loop while a job runs, so
        it must not wait: a message that is being sent, or a child that does not read, is left to
        `_send` and to `kill`."""
        if self._pipe is not None:
            self._pipe.try_send(Interrupt())

    def kill(self) -> None:
        """Kill the process and its process group at once; one that is being started ends soon."""
        self.usable = False
        if self._process is not None and self._process.exit_code() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def hang_up(self) -> None:
        """Close the pipe of an idle process, which makes it end by itself."""
        if self._pipe is not None:
            self._pipe.close()

    def close(self) -> None:
        """End an idle process; one with a lifespan leaves it first."""
        if not self.has_lifespan:
            self.kill()
        self._reap()

    def _started(self, sink: ReportSink) -> Pipe[FromChild]:
        if sink.stopped:  # before it began
            raise BrokenPipeError
        pipe = self._pipe
        if pipe is None:
            pipe = self._spawn()
            if (set_up := as_set_up()) is not None:
                pipe.send(LogConfig(*set_up))
        if not self.usable:  # `kill` came before there was a process
            raise BrokenPipeError
        return pipe

    def _spawn(self) -> Pipe[FromChild]:
        ours, theirs = socket.socketpair()
        # Set before the start: `_reap` closes it if that fails.
        pipe = self._pipe = Pipe[FromChild](ours, FromChild)
        with theirs:
            self._process = spawn(
                [sys.executable, "-m", "jobwire.worker.process_main", str(theirs.fileno())],
                env={**os.environ, "PYTHONPATH": _search_path()},
                keep_fds=[theirs.fileno()],
                last_signal=signal.SIGKILL,
            )
        return pipe

    def _reap(self) -> str:
        """Wait for the end of the process; returns how it ended, as text."""
        self.usable = False
        if self._pipe is not None:
            self._pipe.close()
        if self._process is None:
            return "was not started"
        code = self._process.wait(_GRACE_S)
        if code is None:
            self.kill()
            code = self._process.kill()
        return how_ended(code)


def _children_of(sink: ReportSink) -> ChildrenMessage:
    try:
        return ChildrenMessage.of(sink.children().result())
    except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001 - raised in the child
        return ChildrenMessage({}, {}, {}, [], str(error) or type(error).__name__)


def _send(
    pipe: Pipe[FromChild],
    message: Start | ReportAck | ChildrenMessage | RecordAck,
    sink: ReportSink,
) -> None:
    pipe.send(message)
    if sink.stopped:  # an interrupt that came meanwhile could not be sent
        pipe.send(Interrupt())


def _forward(message: ReportMessage, sink: ReportSink) -> bool:
    """Add the child's report to the sink; blocks while the report window is full."""
    try:
        sink.add(message.report)
    except asyncio.CancelledError:
        return False
    return True


def _record(message: RecordMessage, sink: ReportSink) -> RecordAck:
    """Write the child's record; blocks until the server has it."""
    try:
        sink.record(message.field, message.value, message.kind)
    except asyncio.CancelledError:
        return RecordAck(None)
    except Fail as failure:
        return RecordAck(failure.message, failure.code)
    except Exception as error:  # noqa: BLE001 - raised in the child
        return RecordAck(str(error) or type(error).__name__)
    return RecordAck("")


def _location_of(function: Callable[..., object]) -> tuple[str, str]:
    """Where the child finds a function: its module, or the file of the main program."""
    if function.__module__ != "__main__":
        return function.__module__, ""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name, ""
    return "", str(Path(str(main.__file__)).resolve())


def _search_path() -> str:
    return os.pathsep.join(str(Path(each).resolve()) for each in sys.path)
