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
    Taken,
)
from jobwire.worker.reports import ReportSink

_GRACE_S: Final = 2.0
_PROCESSES: Final = 3
"""How many processes get a job, one after the other, if each dies before it takes it."""


class ProcessPool:
    """The idle processes. Used on the event loop only."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: list[HandlerProcess] = []
        self._closed = False

    def acquire(self) -> "HandlerProcess":
        """A process for one job, new if none is idle; `release` it when the job has ended."""
        while self._idle:
            process = self._idle[-1]
            self._take_out(process)
            if not process.discard_if_dead():
                return process
        return HandlerProcess()

    def release(self, process: "HandlerProcess") -> None:
        """The process's job has ended and can no longer be interrupted."""
        if not process.usable:
            return
        if self._closed:
            process.close()
        else:
            self._idle.append(process)
            # The end of a process, for example of the one that needs most when memory runs out,
            # closes its pipe.
            self._loop.add_reader(process.fileno(), self._readable, process)

    def close(self) -> None:
        """End idle processes; the others end with their job or with this process."""
        self._closed = True
        idle = self._idle[:]
        for process in idle:
            self._take_out(process)
            process.hang_up()  # all of them first, so that they end at the same time
        for process in idle:
            process.close()

    def _readable(self, process: "HandlerProcess") -> None:
        self._loop.remove_reader(process.fileno())  # also after a late message of the job before
        if process.discard_if_dead():
            self._idle.remove(process)

    def _take_out(self, process: "HandlerProcess") -> None:
        self._idle.remove(process)
        self._loop.remove_reader(process.fileno())
        process.block()


class HandlerProcess:
    """One child process; started with its first job, and anew if it dies before it takes a job."""

    def __init__(self) -> None:
        self._process: ChildProcess | None = None
        self._pipe: Pipe[FromChild] | None = None
        self._killed = False
        self.has_lifespan = False
        """The child has a lifespan to leave when it ends."""

    @property
    def usable(self) -> bool:
        """It can take another job."""
        return self._pipe is not None and not self._killed

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
            pipe = self._hand_over(Start.of(job, *location, trace, sink, entered), sink)
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
        if (pipe := self._pipe) is not None:
            pipe.try_send(Interrupt())

    def kill(self) -> None:
        """Kill the process and its process group at once; one that is being started ends soon."""
        self._killed = True
        process = self._process
        if process is not None and process.exit_code() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def hang_up(self) -> None:
        """Close the pipe of an idle process, which makes it end by itself."""
        if self._pipe is not None:
            self._pipe.close()

    def close(self) -> None:
        """End an idle process; one with a lifespan leaves it first."""
        if not self.has_lifespan:
            self.kill()
        self._reap()

    def fileno(self) -> int:
        """Of the pipe to an idle process."""
        assert self._pipe is not None
        return self._pipe.fileno()

    def block(self) -> None:
        """Its pipe is no longer watched."""
        assert self._pipe is not None
        self._pipe.block()

    def discard_if_dead(self) -> bool:
        """Reap the process, which is idle, if it has ended or will take no more jobs."""
        assert self._process is not None
        assert self._pipe is not None
        if self._process.exit_code() is None and not self._pipe.is_closed():
            return False
        self.kill()
        self._reap()
        return True

    def _hand_over(self, start: Start, sink: ReportSink) -> Pipe[FromChild]:
        """Returns the pipe to the process that has taken the job. One that dies before has not
        begun it, so another one gets it."""
        for left in reversed(range(_PROCESSES)):
            is_new = self._pipe is None
            pipe = self._started(sink)
            with contextlib.suppress(OSError):  # what it means is that the process has died
                if is_new and (set_up := as_set_up()) is not None:
                    pipe.send(LogConfig(*set_up))
                _send(pipe, start, sink)
                while message := pipe.receive():  # maybe a late one of the job before
                    if isinstance(message, Taken):
                        return pipe
            if self._killed or not left:
                break
            self._reap()
        raise BrokenPipeError("it ended before it took the job")

    def _started(self, sink: ReportSink) -> Pipe[FromChild]:
        if sink.stopped:  # before it began
            raise BrokenPipeError
        pipe = self._pipe or self._spawn()
        if self._killed:  # before there was a process
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
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()
        if process is None:
            return "was not started"
        code = process.wait(_GRACE_S)
        if code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.kill()
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
