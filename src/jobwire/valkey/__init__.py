"""The Valkey toolkit: a multiplexed connection, and producers and consumers on top of it.

Usable alone: it imports no other package of jobwire, no web framework and no S3 library.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jobwire.valkey.answers import Answer, DeadLetter, NotNow
    from jobwire.valkey.config import Config
    from jobwire.valkey.connection import Connection
    from jobwire.valkey.consumer import Consumer
    from jobwire.valkey.errors import (
        AlreadyStarted,
        AuthFailed,
        ConfigError,
        ConnectionLost,
        ConsumerClosed,
        GroupExists,
        GroupNotFound,
        NotSent,
        NotStarted,
        ServerError,
        StreamNotFound,
        Unavailable,
        Unsupported,
        ValkeyError,
    )
    from jobwire.valkey.health import Health, HealthChecker, Ping
    from jobwire.valkey.in_flight import Handler
    from jobwire.valkey.operations import Client, Pending, PendingInfo, StreamMessage
    from jobwire.valkey.producer import Producer
    from jobwire.valkey.progress import ProgressTracker
    from jobwire.valkey.reclaimer import Reclaimer
    from jobwire.valkey.resp_socket import Arg, Reply
    from jobwire.valkey.scripts import Script, load_scripts

__all__ = [
    "AlreadyStarted",
    "Answer",
    "Arg",
    "AuthFailed",
    "Client",
    "Config",
    "ConfigError",
    "Connection",
    "ConnectionLost",
    "Consumer",
    "ConsumerClosed",
    "DeadLetter",
    "GroupExists",
    "GroupNotFound",
    "Handler",
    "Health",
    "HealthChecker",
    "NotNow",
    "NotSent",
    "NotStarted",
    "Pending",
    "PendingInfo",
    "Ping",
    "Producer",
    "ProgressTracker",
    "Reclaimer",
    "Reply",
    "Script",
    "ServerError",
    "StreamMessage",
    "StreamNotFound",
    "Unavailable",
    "Unsupported",
    "ValkeyError",
    "load_scripts",
]

# Loaded on first use: reading the settings needs no connection, and predictions run without one.
_MODULES: Final = {
    "Pending": "operations",
    "NotNow": "answers",
    "DeadLetter": "answers",
    "Answer": "answers",
    "AlreadyStarted": "errors",
    "Arg": "resp_socket",
    "AuthFailed": "errors",
    "Client": "operations",
    "Config": "config",
    "ConfigError": "errors",
    "Connection": "connection",
    "ConnectionLost": "errors",
    "Consumer": "consumer",
    "ConsumerClosed": "errors",
    "GroupExists": "errors",
    "GroupNotFound": "errors",
    "Handler": "in_flight",
    "Health": "health",
    "HealthChecker": "health",
    "NotSent": "errors",
    "NotStarted": "errors",
    "PendingInfo": "operations",
    "Ping": "health",
    "Producer": "producer",
    "ProgressTracker": "progress",
    "Reclaimer": "reclaimer",
    "Reply": "resp_socket",
    "Script": "scripts",
    "ServerError": "errors",
    "StreamMessage": "operations",
    "StreamNotFound": "errors",
    "Unavailable": "errors",
    "Unsupported": "errors",
    "ValkeyError": "errors",
    "load_scripts": "scripts",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
