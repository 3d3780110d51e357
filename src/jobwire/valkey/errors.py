"""The toolkit's exceptions.

    ValkeyError
      ConfigError       a setting is wrong; names the field
      ConnectionLost    the reply is lost: the command may have run; it is not sent again
      NotSent           never written to the socket: the command did not run
      Unavailable       no usable connection within the timeout
        Unsupported     the peer is not a supported server
      AuthFailed        the server refuses the user name or password
      ServerError       the server replied with an error; `.code` is its first word
        GroupExists, GroupNotFound, StreamNotFound
        Moved           another node of a Cluster has the slot: nothing ran
      ConsumerClosed, NotStarted, AlreadyStarted    a toolkit object used out of turn

No message contains a password.
"""

from typing import ClassVar


class ValkeyError(Exception):
    """Base class of all exceptions of the toolkit."""

    may_have_run: ClassVar[bool] = False
    """Whether the failed command may have taken effect on the server."""


class ConfigError(ValkeyError):
    """A setting is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class ConnectionLost(ValkeyError):
    """The connection broke after the command was written and before its reply came."""

    may_have_run = True


class NotSent(ValkeyError):
    """The command was not written; sending it again is safe."""


class Unavailable(ValkeyError):
    """No connection to the server within the timeout."""


class Unsupported(Unavailable):
    """The peer is not a Valkey or Redis server of version 7 or newer, or has no Lua."""


class AuthFailed(ValkeyError):
    """The server refuses the user name or password."""


class ServerError(ValkeyError):
    """The server replied to the command with an error."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.split(" ", 1)[0]


class GroupExists(ServerError):
    """The consumer group exists already (BUSYGROUP)."""


class GroupNotFound(ServerError):
    """There is no such consumer group, or no such stream (NOGROUP)."""


class StreamNotFound(ServerError):
    """A group cannot be created on a stream that does not exist."""


class Moved(ServerError):
    """Another node of the Cluster has the slot now; the next dial finds it. Only callers of
    exclusive sockets see it, and those whose key is not of the connection's slot."""


class ConsumerClosed(ValkeyError):
    """The consumer was stopped; build a new one."""


class NotStarted(ValkeyError):
    """`stop()` before `start()`."""


class AlreadyStarted(ValkeyError):
    """A second `start()`."""


_BY_CODE: dict[str, type[ServerError]] = {
    "BUSYGROUP": GroupExists,
    "NOGROUP": GroupNotFound,
    "MOVED": Moved,
}


def error_reply(text: str) -> ServerError:
    """The exception for an error reply, by its code."""
    return _BY_CODE.get(text.split(" ", 1)[0], ServerError)(text)
