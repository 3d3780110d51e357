"""Everything that can go wrong between us and the server, as one tree.

    ValkeyError
      ConfigError       a setting is wrong; names the field
      ConnectionLost    the answer is lost: the command may have run, it is not sent again
      NotSent           never written to the socket: it certainly did not run
      Unavailable       no usable connection within the time allowed
        Unsupported     something answers there, but no server that we can use
      AuthFailed        the server refuses our name or password
      ServerError       the server answered with an error; `.code` is its first word
        GroupExists, GroupNotFound, StreamNotFound
      ConsumerClosed, NotStarted, AlreadyStarted    a toolkit object used out of turn

Raised by every module of the toolkit. No message ever holds a password.
"""

from typing import ClassVar


class ValkeyError(Exception):
    """The root: catch this to catch everything that the toolkit raises."""

    may_have_run: ClassVar[bool] = False
    """Whether the command behind this error may have taken effect on the server."""


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
    """No connection to the server could be had in the time allowed."""


class Unsupported(Unavailable):
    """The peer is not a Valkey or Redis server of version 7 or newer."""


class AuthFailed(ValkeyError):
    """The server refuses the user name or password."""


class ServerError(ValkeyError):
    """The server answered the command with an error."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.split(" ", 1)[0]


class GroupExists(ServerError):
    """The consumer group is there already (BUSYGROUP)."""


class GroupNotFound(ServerError):
    """There is no such consumer group, or no such stream (NOGROUP)."""


class StreamNotFound(ServerError):
    """A group was to be made on a stream that does not exist."""


class ConsumerClosed(ValkeyError):
    """The consumer was stopped; build a new one."""


class NotStarted(ValkeyError):
    """`stop()` before `start()`."""


class AlreadyStarted(ValkeyError):
    """A second `start()`."""


_BY_CODE: dict[str, type[ServerError]] = {"BUSYGROUP": GroupExists, "NOGROUP": GroupNotFound}


def error_reply(text: str) -> ServerError:
    """Turn the server's error line into the exception for its code."""
    return _BY_CODE.get(text.split(" ", 1)[0], ServerError)(text)
