"""Checks values against a caller's schema in a process of their own.

Used by handlers. A schema of some hundred bytes can cost hours, also without patterns: references
multiply. Nothing short of a process can stop that, so the kernel limits its CPU time and memory.
A value that matches a short schema without references and patterns needs no process: the cost of
that answer is bounded by the two sizes.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from contextlib import closing, suppress
from typing import Final

import msgspec

from jobwire.json_schema.isolated_main import SchemaQuestion, SchemaVerdict
from jobwire.json_schema.validator import EXACT_WORDS, UnusableSchema
from jobwire.spawn import ChildProcess, environment_without_secrets, spawn

_MAX_PROCESSES: Final = 4
_DEADLINE_S: Final = 30.0
"""For a process that does not get its CPU time on a busy machine."""
_MAX_DIRECT: Final = 2_000_000
"""Bytes of the schema times bytes of the value that are checked without a process: some
milliseconds if every part of the schema is evaluated at every place, mostly far below one."""
_COSTLY_WORDS: Final = (
    *(b'ef"', b'"pattern', b'"regex"', b'"unevaluated'),
    *(f'"{word}"'.encode() for word in EXACT_WORDS),
)
"""Parts of the keywords whose cost is not bounded by these sizes: references, patterns, those that
evaluate their neighbours again, and those that compute with exact numbers."""
_EXIT_TIMEOUT_S: Final = 1.0
"""For a process that has closed its socket."""
_LIMIT_SIGNALS: Final = frozenset({signal.SIGXCPU, signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV})
"""How a process ends that needs more than its CPU time, memory or stack."""


class TooCostly(Exception):
    """The check used up its CPU time, its memory or its time."""


class IsolatedChecks:
    """Checks for one event loop."""

    def __init__(self) -> None:
        self._processes = asyncio.Semaphore(_MAX_PROCESSES)

    async def check_schema(self, schema: object) -> None:
        """Raise UnusableSchema or TooCostly if values cannot be checked against it."""
        await self._ask(SchemaQuestion(schema))

    async def fault(self, schema: object, value: object) -> str:
        """Place and description of the first fault of the value; empty if there is none."""
        return await self._ask(SchemaQuestion(schema, [value]))

    async def _ask(self, question: SchemaQuestion) -> str:
        if _is_simple(question) and question.matches():
            return ""
        async with self._processes:
            verdict = await _ask_process(msgspec.json.encode(question))
        if verdict.unusable:
            raise UnusableSchema(verdict.unusable)
        return verdict.fault


def _is_simple(question: SchemaQuestion) -> bool:
    schema, values = msgspec.json.encode(question.schema), msgspec.json.encode(question.values)
    if any(word in schema for word in _COSTLY_WORDS):
        return False
    return len(schema) * (len(schema) + len(values)) <= _MAX_DIRECT


async def _ask_process(question: bytes) -> SchemaVerdict:
    ours, theirs = socket.socketpair()
    with theirs:
        child = await asyncio.to_thread(_spawn, theirs)
    answer = b""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            reader, writer = await asyncio.open_connection(sock=ours)
            with closing(writer), suppress(OSError):
                writer.write(question)
                writer.write_eof()
                answer = await reader.read(-1)
    except TimeoutError:
        raise TooCostly from None
    finally:
        code = await asyncio.shield(asyncio.to_thread(_end, child))
    if -code in _LIMIT_SIGNALS:
        raise TooCostly
    if code:
        raise RuntimeError(f"the process that checks a schema ended with code {code}")
    return msgspec.json.decode(answer, type=SchemaVerdict)


def _end(child: ChildProcess) -> int:
    """Its exit code, after the connection to it was closed."""
    code = child.wait(_EXIT_TIMEOUT_S)
    return child.kill() if code is None else code


def _spawn(theirs: socket.socket) -> ChildProcess:
    return spawn(
        [sys.executable, "-P", "-m", "jobwire.json_schema.isolated_main", str(theirs.fileno())],
        env=environment_without_secrets(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        keep_fds=[theirs.fileno()],
        last_signal=signal.SIGKILL,
    )
