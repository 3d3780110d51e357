"""The local model's process with additions for tests: pages that show its state, a load that waits,
a crash; and functions that find such processes."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import indent

import psutil

from jobwire.handlers.llm.models import server_main

_START = """
import sys
if {serving!r} in sys.orig_argv:
    import xllamacpp
    real = xllamacpp.Server

    def load(params):
{instead}
        return real(params)

    xllamacpp.Server = load
"""

WAITING = """
import ctypes, pathlib
here = pathlib.Path({here!r})
(here / "loading").touch()
while not (here / "go").exists():
    ctypes.PyDLL(None).usleep(50_000)  # holds Python's lock, as the real one does
"""
"""A load that waits for the file `go`."""


def altered(folder: Path, first: str) -> str:
    """A folder to be put in front of the search path: every model's process that is started with it
    does this before it loads."""
    home = folder / "altered"
    home.mkdir()
    source = _START.format(serving=server_main.__name__, instead=indent(first, " " * 8))
    (home / "sitecustomize.py").write_text(source)
    return str(home)


def waiting(folder: Path) -> str:
    """The same, for a load that waits."""
    return altered(folder, WAITING.format(here=str(folder)))


def search_path(first: str) -> dict[str, str]:
    """The environment of a program that searches this folder first."""
    others = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [first, others]))}


def models_of(pid: int | None = None) -> set[int]:
    """The processes with models that a process has, by default this one."""
    found: set[int] = set()
    for child in psutil.Process(pid).children():
        try:
            words = child.cmdline()
        except psutil.NoSuchProcess:
            continue
        if words[-2:-1] == [server_main.__name__]:
            found.add(child.pid)
    return found
