"""Which user opened a connection on loopback: the uid of the socket at its other end (O-6). Linux.

Both ends of such a connection are sockets of one kernel, which knows the user of each
(sock_diag(7); `ss -e` shows it). A socket that its program has closed has no user: the kernel
then reports the uid 0 and the inode 0.
"""

import contextlib
import socket
import struct
from asyncio import BaseTransport
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, cast

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_ALL_STATES: Final = 0xFFFFFFFF
_ANY_COOKIE: Final = 0xFFFFFFFF
# struct nlmsghdr, then struct inet_diag_req_v2: family, protocol, extensions, states, and the
# address of the socket: its port and the peer's (below), both addresses, interface, cookie.
_QUESTION: Final = struct.Struct("=IHHIIBBBxI4s16s16sIII")
_PORTS: Final = struct.Struct("!HH")
# struct nlmsghdr, then struct inet_diag_msg: family, state, …, uid, inode.
_ANSWER: Final = struct.Struct("=IHHIIBBxx48s12xII")
# TCP states of a socket that has, or had, a connection. Not LISTEN and SYN_SENT: where the asked
# connection no longer exists, the kernel may find another socket on its port.
_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2, _CLOSED, _CLOSE_WAIT, _LAST_ACK, _CLOSING = (
    1,
    4,
    5,
    7,
    8,
    9,
    11,
)
_CONNECTED: Final = frozenset(
    (_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2, _CLOSE_WAIT, _LAST_ACK, _CLOSING)
)

Address = Sequence[Any]
"""Of a TCP socket: host, port, and for IPv6 two more."""


class PeerSocket:
    """The other end of a connection of this server; the kernel is asked at most once."""

    def __init__(self, transport: BaseTransport) -> None:
        self._transport = transport

    @cached_property
    def uid(self) -> int | None:
        """The user who opened the connection; None if that is not certain."""
        ours = self._transport.get_extra_info("socket")
        if ours is None:
            return None
        with contextlib.suppress(OSError):
            found = uid_of_peer(ours.getpeername(), ours.getsockname())
            # While our end is not closed, no other connection can have had the same two addresses:
            # the answer is about this one.
            if ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _CLOSED:
                return found
        return None


def uid_of_peer(peer: Address | None, ours: Address | None) -> int | None:
    """The user of the socket `peer` that is connected to `ours`; None if the kernel knows none."""
    if peer is None or ours is None:
        return None
    try:
        family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
        question = _QUESTION.pack(
            _QUESTION.size,
            _SOCK_DIAG_BY_FAMILY,
            _NLM_F_REQUEST,
            0,
            0,
            family,
            socket.IPPROTO_TCP,
            0,
            _ALL_STATES,
            _PORTS.pack(peer[1], ours[1]),
            socket.inet_pton(family, peer[0]),
            socket.inet_pton(family, ours[0]),
            0,
            _ANY_COOKIE,
            _ANY_COOKIE,
        )
        with socket.socket(
            cast("Any", socket).AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG
        ) as kernel:
            # The kernel answers before `send` returns.
            kernel.setblocking(False)
            kernel.send(question)
            answer = kernel.recv(_ANSWER.size)
        _, kind, _, _, _, _, state, _, uid, inode = _ANSWER.unpack(answer)
    except (OSError, struct.error):
        return None
    known = kind == _SOCK_DIAG_BY_FAMILY and state in _CONNECTED and inode != 0
    return uid if known else None
