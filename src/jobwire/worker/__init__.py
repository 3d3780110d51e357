"""The worker: holds jobs and runs their handlers.

A job walks through it so:

    loop       takes it from an engine, for a slot that is free (slots)
    runner     runs its handler: a coroutine, a thread (threads) or a process (children, pipe)
    context    is what the handler sees; what it says goes through its voice
    endings    turns what the handler did into an outcome, by pure code
    outgoing   collects what is to be sent; the loop sends it once a turn

Around it: keeper (leases, from a thread), ground (the way back after an outage), watchdog (a loop
that silently stopped), shutdown (drain, then give back). It does not know which wire it serves.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jobwire.worker.app import App, Handler
    from jobwire.worker.context import Context
    from jobwire.worker.worker import Worker

__all__ = ["App", "Context", "Handler", "Worker"]

# Loaded when asked for: whoever reads our settings needs no worker.
_HOMES: Final = {"App": "app", "Handler": "app", "Context": "context", "Worker": "worker"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
