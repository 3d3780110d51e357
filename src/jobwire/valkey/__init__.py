"""The Valkey toolkit: a multiplexed connection, and producers and consumers on top of it.

Usable alone: it imports no other package of jobwire, no web framework and no S3 library.
"""

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
from jobwire.valkey.operations import Client, PendingInfo, StreamMessage
from jobwire.valkey.producer import Producer
from jobwire.valkey.progress import ProgressTracker
from jobwire.valkey.reclaimer import Reclaimer
from jobwire.valkey.resp_socket import Arg, Reply
from jobwire.valkey.scripts import Script, load_scripts

__all__ = [
    "AlreadyStarted",
    "Arg",
    "AuthFailed",
    "Client",
    "Config",
    "ConfigError",
    "Connection",
    "ConnectionLost",
    "Consumer",
    "ConsumerClosed",
    "GroupExists",
    "GroupNotFound",
    "Handler",
    "Health",
    "HealthChecker",
    "NotSent",
    "NotStarted",
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
