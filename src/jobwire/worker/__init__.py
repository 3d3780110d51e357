"""The worker: leases jobs and runs their handlers. It knows no wire.

The path of a job:

    queue_loop  takes it from an engine, for a free slot (slots)
    runner      runs its handler: a coroutine, a thread (threads) or a process (process_pool, pipe)
    context     is what the handler sees
    reports     carry its events to the engine
    outcomes    turn the end of the handler's code into an outcome; pure
    run         the state of the job from lease to end

Besides: lease_renewal (from a thread), backend (recovery after an outage), watchdog (a loop that
hangs), shutdown (drain, then release), scheduler and cron, metrics, collector and
health_server, tracing, middleware.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jobwire.worker.app import App, Handler
    from jobwire.worker.context import Context
    from jobwire.worker.middleware import CallNext, Middleware
    from jobwire.worker.worker import Worker

__all__ = ["App", "CallNext", "Context", "Handler", "Middleware", "Worker"]

# Loaded on first use: reading the settings needs no worker.
_MODULES: Final = {
    "App": "app",
    "CallNext": "middleware",
    "Context": "context",
    "Handler": "app",
    "Middleware": "middleware",
    "Worker": "worker",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
