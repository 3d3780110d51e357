"""Child processes for `process=True`: the worker's side.

A child is spawned, never forked: a fork of a program with threads and sockets copies locks that
nobody will ever open. It serves one job at a time and is kept for the next. It dies with the
worker, also when that is killed: `child.py` sees to it.

Called by the runner; `run` blocks a thread of its pool.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from jobwire.job.messages import JobInfo
from jobwire.log import as_set_up
from jobwire.worker.context import ReportSink
from jobwire.worker.outcomes import Crashed, ProcessResult
from jobwire.worker.pipe import (
    Ended,
    FromChild,
    Interrupt,
    LogConfig,
    Pipe,
    ReportAck,
    ReportMessage,
    Start,
)

_GRACE_S: Final = 2.0


class ProcessPool:
    """Those that are free; made when there are too few. Used on the event loop only."""

    def __init__(self) -> None:
        self._free: list[HandlerProcess] = []
        self._closed = False

    def acquire(self) -> "HandlerProcess":
        """A child for one job; to be brought back when that has ended."""
        return self._free.pop() if self._free else HandlerProcess()

    def give_back(self, child: "HandlerProcess") -> None:
        """Its job has ended and nobody will interrupt it any more."""
        if not child.usable:
            return
        if self._closed:
            child.dismiss()
        else:
            self._free.append(child)

    def close(self) -> None:
        """End those that are free; the others end with their job, or with us."""
        self._closed = True
        while self._free:
            self._free.pop().dismiss()


class HandlerProcess:
    """One child process; started with its first job."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Pipe[FromChild] | None = None
        self._lock = threading.Lock()
        self.usable = True

    def run(
        self, function: Callable[..., object], job: JobInfo, outlet: ReportSink, trace: str = ""
    ) -> ProcessResult:
        """Run one job; blocks until it has ended."""
        module, path = _home_of(function)
        start = Start.of(job, module, path, function.__qualname__, trace)
        with contextlib.suppress(OSError):
            pipe = self._begun(start, outlet)
            while message := pipe.receive():
                if isinstance(message, Ended):
                    return ProcessResult(message.ending, message.partial_json, outlet.stopped)
                if isinstance(message, ReportMessage):
                    pipe.send(ReportAck(_passed_on(message, outlet)))
                else:
                    outlet.restart_timeout()
        ending = Crashed(f"the handler's process {self._reap()}", "")
        return ProcessResult(ending, "", outlet.stopped)

    def interrupt(self) -> None:
        """Tell the handler to stop; called while a job runs, from another thread."""
        with self._lock:
            if self._pipe is not None:
                with contextlib.suppress(OSError):
                    self._pipe.send(Interrupt())

    def kill(self) -> None:
        """End the process, and whatever it has started, at once."""
        with self._lock:
            self.usable = False
            if self._process is not None and self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def dismiss(self) -> None:
        """It idles and is needed no more."""
        self.kill()
        self._reap()

    def _begun(self, start: Start, outlet: ReportSink) -> Pipe[FromChild]:
        with self._lock:
            if outlet.stopped:  # told to stop before it began: an interrupt would find nobody
                raise BrokenPipeError
            if self._pipe is None:
                self._pipe = self._spawned()
                if (set_up := as_set_up()) is not None:
                    self._pipe.send(LogConfig.of(*set_up))
            self._pipe.send(start)
            return self._pipe

    def _spawned(self) -> Pipe[FromChild]:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, our own arguments
                [sys.executable, "-m", "jobwire.worker.process_main"]
                + [str(number) for number in (theirs.fileno(), os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": _search_path()},
                # Ctrl-C is for the worker alone: it lets its jobs end first.
                start_new_session=True,
            )
        return Pipe(ours, FromChild)

    def _reap(self) -> str:
        """Wait for the end of the process, and say how it came."""
        self.usable = False
        if self._pipe is not None:
            self._pipe.close()
        if self._process is None:
            return "was not started"
        try:
            code = self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.wait()
        if code >= 0:
            return f"ended with exit code {code}"
        return f"was ended by {signal.Signals(-code).name}"


def _passed_on(said: ReportMessage, outlet: ReportSink) -> bool:
    """Blocks while the job has said more than it may."""
    try:
        outlet.add(said.report())
    except asyncio.CancelledError:
        return False
    return True


def _home_of(function: Callable[..., object]) -> tuple[str, str]:
    """Where a child finds a function: its module, or the file of the main program."""
    if function.__module__ != "__main__":
        return function.__module__, ""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name, ""
    return "", str(Path(str(main.__file__)).resolve())


def _search_path() -> str:
    return os.pathsep.join(str(Path(each).resolve()) for each in sys.path)
