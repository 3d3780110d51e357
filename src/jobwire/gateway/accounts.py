"""Whose connections and requests are, and who gives when there are too many (O-6, O-15).

A connection *waits* while its request has proved nothing: before the head, during a proof, between
requests, in a public route. Then it belongs to the address of its peer. A request that has proved
its key belongs to that key, and the key to its tenant, until its task has ended, even if its client
is gone. `prove` begins this, the end of the task ends it (`Ownership.end`).

One rule: whoever has most gives the oldest. Waiting connections may have all that is free, proved
requests three quarters: so a quarter can always be closed for new clients and for health checks.

A request costs some additions. Who has most, and what is oldest, is looked for only when something
is full.
"""

from collections import Counter
from itertools import islice
from typing import Final, Protocol
from weakref import WeakValueDictionary

from jobwire.api.problems import BAD_KEY, DISPLACED, TOO_MANY_REQUESTS
from jobwire.gateway.auth import Principal
from jobwire.gateway.problems import Problem, retry_after
from jobwire.gateway.request import OWNERSHIP_KEY, HttpRequest
from jobwire.gateway.settings import most_proved

_EXAMINED: Final = 256
"""Connections examined to find one that may be closed for a new one."""
_RETRY_S: Final = 5


class Account:
    """The requests of one key that are being answered."""

    __slots__ = ("running", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.running = 0


class Peer:
    """The connections of one address that wait."""

    __slots__ = ("__weakref__", "waiting")

    def __init__(self) -> None:
        self.waiting = 0


class Ownership:
    """Whose one connection is. Its requests know it, and nothing else of the connection."""

    __slots__ = ("account", "accounts", "peer")

    def __init__(self, accounts: "Accounts", peer: Peer) -> None:
        self.accounts = accounts
        self.peer = peer
        self.account: Account | None = None
        """Of the key whose request is being answered; None while the connection waits."""

    def end(self) -> None:
        """The request has ended."""
        account = self.account
        if account is not None:
            self.account = None
            account.running -= 1
            self.peer.waiting += 1

    def move(self, peer: Peer) -> None:
        """The waiting connection belongs to another address than was known."""
        self.peer.waiting -= 1
        peer.waiting += 1
        self.peer = peer


def prove(request: HttpRequest, principal: Principal) -> None:
    """The caller has proved who it is: from now on the request belongs to its key. A Problem if the
    key has too many."""
    request.principal = principal
    ownership: Ownership | None = request.scope.get(OWNERSHIP_KEY)
    if ownership is None:
        return  # on a server of others
    accounts = ownership.accounts
    account = accounts.by_key.get(principal.key)
    if account is None:
        account = accounts.by_key[principal.key] = Account(principal.tenant)
    if accounts.is_tight:
        accounts.make_place(account)
    account.running += 1
    ownership.peer.waiting -= 1
    ownership.account = account


class CountedConnection(Protocol):
    ownership: Ownership
    used: bool
    """Whether it has answered a request since it went to the end of the line."""

    @property
    def is_proxied(self) -> bool:
        """Whether the peer is a proxy (`gateway.proxies`)."""
        ...

    @property
    def forwarded_address(self) -> str | None:
        """Of a proxy's connection: the address for which its request was forwarded; None while it
        carries no request."""
        ...

    @property
    def awaits_end(self) -> bool:
        """Whether its request does nothing but wait: an event stream, `Prefer: wait`."""
        ...

    def stop(self, problem: Problem | None = None) -> None:
        """Reset the connection and cancel its request; the problem is its answer if none has
        begun."""
        ...


class Accounts:
    """All connections of a server."""

    def __init__(self, limit: int) -> None:
        self.connections: dict[CountedConnection, None] = {}
        """Open ones, and closed ones whose request is still being answered, in line: the next one
        to be closed for others comes first."""
        self.by_key: dict[str, Account] = {}
        self.closed_for_others = 0
        """Connections closed, and requests ended, since the last tick for others."""
        self._peers: WeakValueDictionary[str, Peer] = WeakValueDictionary()
        self.set_limit(limit)

    def set_limit(self, limit: int) -> None:
        """The number of connections."""
        self.limit = limit
        self.most_proved = most_proved(limit)
        self._changed()

    def _changed(self) -> None:
        self.is_tight = len(self.connections) >= self.most_proved
        """Whether proved requests may be too many; else they need not be added up."""

    @property
    def proved(self) -> int:
        """Requests of all keys that are being answered."""
        return sum(each.running for each in self.by_key.values())

    def peer(self, address: str) -> Peer:
        """The peer of an address, of which IPv6 has 2^64 for each (`proxies.network`)."""
        found = self._peers.get(address)
        if found is None:
            found = self._peers[address] = Peer()
        return found

    def enter(self, connection: CountedConnection) -> None:
        """A new connection. Closes one that waits if there is no space."""
        # Twice, because the last time there may have been none among those examined.
        for _ in range(2):
            if len(self.connections) >= self.limit:
                self._close_one()
        self.connections[connection] = None
        connection.ownership.peer.waiting += 1
        self._changed()

    def leave(self, connection: CountedConnection) -> None:
        """The connection is closed, and its request has ended; only the first call counts."""
        if connection in self.connections:
            del self.connections[connection]
            connection.ownership.move(Peer())
            self._changed()

    def end(self, key: str) -> int:
        """End all requests of a key that is no longer valid; returns how many there were."""
        account = self.by_key.get(key)
        found = self._of(account) if account is not None else []
        for connection in found:
            self._end(connection, Problem(BAD_KEY))
        self.by_key.pop(key, None)
        return len(found)

    def forget_idle(self) -> None:
        """Once a second: uploads have a key each, so keys without a request are not kept."""
        self.by_key = {name: each for name, each in self.by_key.items() if each.running}

    def make_place(self, account: Account) -> None:
        """Proved requests may have all that they may. Then the largest key of the largest tenant
        gives its oldest, if it has at least two more than the caller; else a Problem."""
        if self.proved < self.most_proved:
            return
        tenants = Counter[str]()
        for each in self.by_key.values():
            tenants[each.tenant] += each.running
        tenant = max(tenants, key=tenants.__getitem__)
        more = tenants[tenant] - tenants[account.tenant]
        if more < 2:
            tenant = account.tenant
        of_tenant = [each for each in self.by_key.values() if each.tenant == tenant]
        largest = max(of_tenant, key=lambda each: each.running)
        if tenant == account.tenant:
            more = largest.running - account.running
        if more < 2:
            raise Problem(TOO_MANY_REQUESTS, headers=retry_after(_RETRY_S))
        found = self._of(largest)
        # Streams and waits first: they lose nothing, and an old connection may have a new request.
        found.sort(key=lambda each: not each.awaits_end)
        # Several at once, because the search costs as much as there are connections.
        for connection in found[: min(more // 2, 1 + self.limit // 100)]:
            self.closed_for_others += 1
            self._end(connection, Problem(DISPLACED, headers=retry_after(_RETRY_S)))

    def _of(self, account: Account) -> list[CountedConnection]:
        return [each for each in self.connections if each.ownership.account is account]

    def _end(self, connection: CountedConnection, problem: Problem) -> None:
        # At once: the task ends later, and must not be chosen a second time until then.
        connection.ownership.end()
        connection.stop(problem)

    def _close_one(self) -> None:
        """Close the first connection in line whose peer has its equal part of those that wait, or
        more. Those before it go to the end of the line; one that was used has a second chance. If
        there is none, the first one of the peer with most."""
        equal_part = (len(self.connections) - self.proved) / max(1, len(self._peers))
        first_of: dict[Peer, CountedConnection] = {}
        resting: CountedConnection | None = None
        for connection in [*islice(self.connections, _EXAMINED)]:
            if connection.ownership.account is None:
                peer = self._waiting_peer(connection)
                if peer is None:
                    resting = resting or connection
                elif peer.waiting < equal_part or connection.used:
                    first_of.setdefault(peer, connection)
                else:
                    self._close(connection)
                    return
            connection.used = False
            del self.connections[connection]
            self.connections[connection] = None
        if first_of:
            self._close(first_of[max(first_of, key=lambda peer: peer.waiting)])
        elif resting is not None and len(self.connections) >= self.limit + _EXAMINED:
            self._close(resting)  # nothing else was found for long

    def _waiting_peer(self, connection: CountedConnection) -> Peer | None:
        """To whom a waiting connection belongs; None for a proxy's that carries no request."""
        ownership = connection.ownership
        if connection.is_proxied:
            address = connection.forwarded_address
            if address is None:
                return None
            ownership.move(self.peer(address))
        return ownership.peer

    def _close(self, connection: CountedConnection) -> None:
        self.closed_for_others += 1
        # At once: it is closed later, and must not be chosen a second time until then.
        self.leave(connection)
        connection.stop()
