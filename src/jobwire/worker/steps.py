"""Steps of a handler whose results are recorded (D-1 … D-6).

`Context.step` makes a plan, a generator that yields what is to be done: write a field of the
record, or call the function. `run` executes it in a coroutine, `run_sync` in a thread or a child
process. So both kinds of handlers have the same rules.

A handler always gets the decoded JSON form of a result: the first run sees what later runs see.
"""

import asyncio
import inspect
import re
import threading
import time
import typing
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast
from weakref import WeakKeyDictionary

import msgspec

from jobwire.job.engine import StepRules
from jobwire.job.errors import Fail, HandlerSignal, Retry, StepInterrupted
from jobwire.job.messages import (
    CALL_KIND,
    DUE_FIELD,
    ERROR_FIELD,
    RECORD_KIND,
    RESULT_FIELD,
    STARTED_FIELD,
    SUBMIT_KIND,
    Report,
    Restarted,
    Suspended,
)
from jobwire.json_types import Read, reader
from jobwire.worker import step_errors
from jobwire.worker.branches import MustWait
from jobwire.worker.codec import JsonTooLarge, NotJson, to_json
from jobwire.worker.replay import Replay, places

if TYPE_CHECKING:  # reports.py has the sinks, each of which has a record
    from jobwire.worker.reports import ReportSink

STEP_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_OWN: Final = (RESULT_FIELD, STARTED_FIELD, ERROR_FIELD, DUE_FIELD)
"""Fields that the handler's own calls add; signals and ends of children are bounded elsewhere."""
_POLL_S: Final = 0.1
_MARK: Final = "1"
_REMOVED: Final = ""


class StepNotRecorded(RuntimeError):
    """The server does not accept the record of a step; the attempt fails."""


class StepRecord:
    """What a job has from earlier runs, and what this run adds. Any thread of the handler may use
    it."""

    __slots__ = (
        *("_bytes", "_lock", "_own", "_read_ms", "_read_s"),
        *("attempt", "fields", "names", "read", "replay", "rules", "suspended"),
    )

    def __init__(
        self,
        rules: StepRules | None,
        fields: Mapping[str, str],
        now_ms: int = 0,
        names: Mapping[str, int] = MappingProxyType({}),
        attempt: int = 1,
    ) -> None:
        """`now_ms` is the server's time, by which sleeps end."""
        self.rules = rules
        self.attempt = attempt
        self.fields = dict(fields)
        self.replay = Replay(found) if (found := places(fields)) else None
        """The reports of this run until it has come to the end of the record."""
        own = [value for field, value in self.fields.items() if field.startswith(_OWN)]
        self._own = len(own)
        self._bytes = sum(map(_size, own))
        self.names = dict(names)
        """How often this run has used each name. A process continues those of its middleware, and
        the middleware continues those of the process."""
        self._lock = threading.Lock()
        self._read_ms, self._read_s = now_ms, time.monotonic()
        self.read = set[str]()
        """The signals whose values this run has got."""
        self.suspended = False
        """The run has asked for its job to be suspended: it does nothing more."""

    @property
    def now_ms(self) -> int:
        """The server's time."""
        return self._read_ms + round((time.monotonic() - self._read_s) * 1000)

    def left_s(self, due_ms: str) -> float:
        """The seconds until a recorded time."""
        return (int(due_ms) - self.now_ms) / 1000

    def check_running(self) -> None:
        if self.suspended:
            raise asyncio.CancelledError("this job is suspended")

    def count(self, name: str) -> int:
        """How often this run has used the name, this use included."""
        with self._lock:
            count = self.names[name] = self.names.get(name, 0) + 1
        return count

    def numbered(self, name: str, kind: str = RESULT_FIELD) -> str:
        """The name, or `name:2` and so on where this run has used it before."""
        count = self.count(kind + name)
        return name if count == 1 else f"{name}:{count}"

    def reach(self, field: str) -> None:
        """A branch has come to a place that the record has, or makes a new one."""
        if self.replay is not None:
            self.replay.reach(field)

    def check_space(self, name: str, rules: StepRules, more: int = 0) -> None:
        """Fail if the record has no space for one more result, or for these bytes of it."""
        if self._own >= rules.max_records:
            reason = f"a job has at most {rules.max_records:,} records"
        elif self._bytes + more > rules.max_record_bytes:
            reason = f"the results of a job have at most {rules.max_record_bytes:,} bytes"
        else:
            return
        raise Fail("step_too_large", f"step {name!r}: {reason}")

    def add(self, field: str, value: str) -> None:
        """The record has this field now; an empty value: not any more."""
        with self._lock:
            known = self.fields.pop(field, "")
            if field.startswith(_OWN):
                self._bytes += _size(value) - _size(known)
                self._own += bool(value) - bool(known)
            if value:
                self.fields[field] = value


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


class _Write(NamedTuple):
    field: str
    value: str


class _Announce(NamedTuple):
    name: str


class _Call(NamedTuple):
    """Call the function, and send its result."""


class Submit(NamedTuple):
    """Submit a child; `field` of the record names it."""

    field: str
    data_json: str


class SleepHere(NamedTuple):
    """Wait in the worker; or, beside a branch that waits without one, so."""

    seconds: float
    instead: Suspended


class Suspend(NamedTuple):
    """Suspend the job, which ends the run."""

    outcome: Suspended | Restarted


_CALL: Final = _Call()
Todo: TypeAlias = _Write | _Announce | _Call | Submit | SleepHere | Suspend
Plan: TypeAlias = Generator[Todo, object, Any]


def plan(record: StepRecord, name: str, function: Callable[..., object], *, once: bool) -> Plan:
    """The plan of one call of `step` or `step_once`. The name is checked and gets its number here,
    not when the plan is executed (D-2)."""
    record.check_running()
    if record.rules is None:
        raise Fail("unsupported", "the wire of this queue cannot record steps: use a queue of jobs")
    return _plan(record, record.rules, record.numbered(named(name, "step")), function, once)


def named(name: str, what: str) -> str:
    """A name of the record; another attempt would choose no better one."""
    if STEP_NAME.fullmatch(name) is None:
        raise Fail(
            "step_invalid",
            f"{name!r} cannot name a {what}: use 1-100 of A-Z a-z 0-9 _ . - and begin with a "
            "letter or digit",
        )
    return name


def _plan(
    record: StepRecord, rules: StepRules, name: str, function: Callable[..., object], once: bool
) -> Plan:
    read = _reader(name, function)
    field, failed, mark = RESULT_FIELD + name, ERROR_FIELD + name, STARTED_FIELD + name
    if (stored := record.fields.get(field)) is not None:
        record.reach(field)
        return read(stored)
    if (stored := record.fields.get(failed)) is not None:
        raise step_errors.read(stored, name, function)
    if once and mark in record.fields:
        raise StepInterrupted(name)
    record.check_space(name, rules)
    if once:
        yield _Write(mark, _MARK)
        record.add(mark, _MARK)
    if rules.announces_calls:
        yield _Announce(name)
    began_s = time.monotonic()
    try:
        value = yield _CALL
    except HandlerSignal as signal:  # what becomes of the job, not of the step
        if once and isinstance(signal, Retry):  # the function says that it may be called again
            yield _Write(mark, _REMOVED)
            record.add(mark, _REMOVED)
        raise
    except Exception as error:
        text = step_errors.written(error, name, _ms_since(began_s), record.attempt)
        record.check_space(name, rules, _size(text))
        yield _Write(failed, text)
        record.reach(failed)
        record.add(failed, text)
        raise
    took_ms = _ms_since(began_s)
    text = f"[0,{took_ms},{_encoded(name, value, rules)}]"
    record.check_space(name, rules, _size(text))
    result = read(text)
    yield _Write(field, text)
    record.reach(field)  # not before: the function may have waited, which the record has
    record.add(field, text)
    record.add(mark, _REMOVED)
    return result


def _ms_since(began_s: float) -> int:
    return round((time.monotonic() - began_s) * 1000)


def _no_function() -> None:
    """A plan that calls no function."""


async def run(
    steps: Plan,
    sink: "ReportSink",
    function: Callable[..., object] = _no_function,
    args: Any = (),
    kwargs: Any = MappingProxyType({}),
) -> Any:
    """Execute the plan in a coroutine. A plain function is called in a thread."""
    branches, work = sink.branches, None
    answer: Any
    cancelled: asyncio.CancelledError | None = None
    try:
        todo = next(steps)
        if branches is not None:
            work = branches.begin()
        while True:
            try:
                if todo is _CALL:
                    _check_running(sink)
                    if _is_coroutine_function(function):
                        answer = await cast("Awaitable[Any]", function(*args, **kwargs))
                    else:
                        call = partial(function, *args, **kwargs)
                        answer, cancelled = await sink.threads.call(call)
                        if cancelled is None and inspect.isawaitable(answer):
                            answer = await answer
                elif isinstance(todo, SleepHere):
                    if branches is not None and branches.any_waits:
                        todo = Suspend(todo.instead)
                        continue
                    answer = await asyncio.sleep(todo.seconds)
                else:
                    answer = await _request(todo, sink)
            except MustWait as refused:
                todo = Suspend(refused.outcome)
                continue
            except BaseException as error:  # noqa: BLE001 - the plan decides
                todo = steps.throw(error)
            else:
                todo = steps.send(answer)
    except StopIteration as end:
        if cancelled is not None:  # while a thread could not be stopped: its result is recorded
            raise cancelled from None
        return end.value
    finally:
        if branches is not None and work is not None:
            branches.end(work)


def _is_coroutine_function(function: Callable[..., object]) -> bool:
    if inspect.isroutine(function) or isinstance(function, partial):
        return inspect.iscoroutinefunction(cast("Any", function))
    return inspect.iscoroutinefunction(type(function).__call__)


def run_sync(
    steps: Plan,
    sink: "ReportSink",
    function: Callable[..., object] = _no_function,
    args: Any = (),
    kwargs: Any = MappingProxyType({}),
) -> Any:
    """Execute the plan in a thread, where requests to the sink block."""
    try:
        todo = next(steps)
        while True:
            try:
                if todo is _CALL:
                    _check_running(sink)
                    answer = function(*args, **kwargs)
                    if inspect.iscoroutine(answer):
                        answer = asyncio.run(answer)
                elif isinstance(todo, SleepHere):
                    answer = _pause(todo.seconds, sink)
                else:
                    answer = _request(todo, sink)
            except BaseException as error:  # noqa: BLE001 - the plan decides
                todo = steps.throw(error)
            else:
                todo = steps.send(answer)
    except StopIteration as end:
        return end.value


def _pause(seconds: float, sink: "ReportSink") -> None:
    """Sleep in a thread, until the handler is asked to stop."""
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        _check_running(sink)
        time.sleep(min(_POLL_S, left_s))


def _check_running(sink: "ReportSink") -> None:
    """Nothing is paid for by a run that was asked to stop: another one may have the job."""
    if sink.stopped:
        raise asyncio.CancelledError("this job is over")
    sink.steps.check_running()


def _request(todo: Todo, sink: "ReportSink") -> Awaitable[None]:
    match todo:
        case _Write(field, value):
            return sink.record(field, value, RECORD_KIND)
        case Submit(field, data_json):
            return sink.record(field, data_json, SUBMIT_KIND)
        case Suspend(outcome):
            return sink.suspend(outcome)
        case _Announce(name):
            return sink.add(Report(CALL_KIND, "null", name))
        case _:
            raise TypeError(f"{type(todo).__name__} is not a request")


# ── results ──────────────────────────────────────────────────────────────────────────────────────


def _encoded(name: str, value: object, rules: StepRules) -> str:
    try:
        return to_json(value, rules.max_result_bytes)
    except JsonTooLarge as error:
        raise Fail("step_too_large", f"the result of step {name!r} is too large: {error}") from None
    except NotJson as error:
        raise Fail("step_invalid", f"the result of step {name!r} is not JSON: {error}") from None


_decode: Final = msgspec.json.Decoder(tuple[int, int, msgspec.Raw]).decode
_readers: WeakKeyDictionary[Any, Read] = WeakKeyDictionary()


def _reader(name: str, function: Callable[..., object]) -> Callable[[str], object]:
    """Reads a stored result, in the type that the function's annotation promises. Made before the
    function is called: nothing is paid for a result that cannot be read."""
    read_value = _readers.get(code) if (code := _code(function)) is not None else None
    if read_value is None:
        try:
            read_value = reader(_result_type(function))
        except TypeError as error:
            raise Fail("step_invalid", f"step {name!r}: no result is read as {error}") from error
        if code is not None:
            _readers[code] = read_value

    def read(text: str) -> object:
        try:
            return read_value(bytes(_decode(text)[2]))
        except (msgspec.DecodeError, ValueError) as error:
            reason = f"the result of step {name!r} is not of the annotated type: {error}"
            raise Fail("step_invalid", reason) from error

    return read


def _code(function: Callable[..., object]) -> object:
    """What the reader of a function is remembered by; None for a callable that cannot be."""
    code = getattr(function, "__func__", function)
    return code if inspect.isfunction(code) else None


def _result_type(function: Callable[..., object]) -> object:
    """The annotated type of the result; None without one. TypeError if it cannot be found."""
    while isinstance(function, partial):
        function = cast("Callable[..., object]", function.func)
    if isinstance(function, type):
        return None
    routine = function if inspect.isroutine(function) else type(function).__call__
    routine = inspect.unwrap(cast("Any", routine))
    annotations = getattr(routine, "__annotations__", {})
    if "return" not in annotations:
        return None
    holder = SimpleNamespace(__annotations__={"return": annotations["return"]})
    names = getattr(routine, "__globals__", {})
    try:
        found = typing.get_type_hints(holder, names, _closure(routine))["return"]
    except NameError as error:
        raise TypeError(
            f"{annotations['return']!r}: {error.name!r} cannot be found; define the type at the "
            "top level of the module, and import it there at run time"
        ) from None
    if typing.get_origin(found) in (Awaitable, Coroutine):  # of a `def` that returns a coroutine
        found = typing.get_args(found)[-1]
    return found


def _closure(routine: Any) -> dict[str, object]:
    """The variables of enclosing functions that this one uses."""
    return dict(inspect.getclosurevars(routine).nonlocals) if inspect.isfunction(routine) else {}
