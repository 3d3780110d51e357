"""The Valkey toolkit: a fast connection and what messaging needs on top of it.

Usable alone: needs no web framework, no S3, no image library, and nothing else of jobwire.
"""

from jobwire.valkey.config import Config
from jobwire.valkey.connection import Connection
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
from jobwire.valkey.operations import Client, PendingInfo, StreamMessage
from jobwire.valkey.scripts import Script, load_scripts
from jobwire.valkey.wire import Arg, Reply

__all__ = [
    "AlreadyStarted",
    "Arg",
    "AuthFailed",
    "Client",
    "Config",
    "ConfigError",
    "Connection",
    "ConnectionLost",
    "ConsumerClosed",
    "GroupExists",
    "GroupNotFound",
    "NotSent",
    "NotStarted",
    "PendingInfo",
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
