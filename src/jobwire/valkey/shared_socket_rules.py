"""Which commands may not travel on a socket that many callers share.

A command that blocks would hold up everybody behind it; one that changes what replies mean
(MULTI, MONITOR, SUBSCRIBE) would hand other callers the wrong answers. Checked on every call, so
it costs one look into a table: what a command's name means is worked out once.
"""

from typing import Final

from jobwire.valkey.resp_socket import Arg

# fmt: off
_BLOCKING: Final = frozenset((
    "BLPOP", "BRPOP", "BLMOVE", "BLMPOP", "BRPOPLPUSH", "BZPOPMIN", "BZPOPMAX", "BZMPOP",
    "WAIT", "WAITAOF",
))
_STATEFUL: Final = frozenset((
    "MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH", "MONITOR", "RESET", "QUIT", "HELLO", "AUTH",
    "SELECT", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE",
    "SUNSUBSCRIBE", "SYNC", "PSYNC", "ASKING", "READONLY", "READWRITE",
))
# fmt: on
_MAY_BLOCK: Final = frozenset(("XREAD", "XREADGROUP"))
_FREE, _LOOK, _REFUSED = 0, 1, 2
_verdicts: dict[Arg, int] = {}


def check_shareable(args: tuple[Arg, ...]) -> None:
    """Raise ValueError for a command that needs a socket of its own."""
    if not args:
        raise ValueError("a command needs a name")
    verdict = _verdicts.get(args[0])
    if verdict is None:
        verdict = _judge(args[0])
    if verdict == _FREE:
        return
    if verdict == _REFUSED or any(_upper(arg) == "BLOCK" for arg in args[1:7]):
        raise ValueError(
            f"{_upper(args[0])} may not run on the shared socket;"
            " use connection.socket() or connection.subscribe()"
        )


def _judge(name: Arg) -> int:
    word = _upper(name)
    if word in _BLOCKING or word in _STATEFUL:
        verdict = _REFUSED
    elif word in _MAY_BLOCK:
        verdict = _LOOK
    else:
        verdict = _FREE
    if len(_verdicts) < 1000:  # names come from code, but a mistake must not fill the memory
        _verdicts[name] = verdict
    return verdict


def _upper(arg: Arg) -> str:
    return (arg.decode("utf-8", "replace") if isinstance(arg, bytes) else str(arg)).upper()
