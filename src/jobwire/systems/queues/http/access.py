"""Which queue a request is about, and whether its caller may see it (B-18).

A queue belongs to the tenant that the settings map it to; other queues are for keys with the scope
`admin`, which every caller has on loopback without keys. A queue that a caller may not see is
answered as not found.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from jobwire.api.queues import QUEUE_NOT_FOUND
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.tenants import may_see
from jobwire.systems.queues.checks import check_queue_name
from jobwire.systems.queues.contract import Keys
from jobwire.systems.queues.known_queues import KnownQueues
from jobwire.systems.queues.payloads import check_payload
from jobwire.systems.queues.queue import QueueProducer
from jobwire.systems.queues.settings import BullSettings
from jobwire.valkey import Connection


@dataclass(frozen=True, slots=True)
class QueueAccess:
    connection: Connection
    settings: BullSettings
    known_queues: KnownQueues
    tenant_of: Mapping[str, str]

    def is_visible(self, request: HttpRequest, queue: str) -> bool:
        owner = self.tenant_of.get(queue)
        if owner is None:
            return "admin" in request.principal.scopes
        return may_see(request, owner)

    def names(self, request: HttpRequest) -> list[str]:
        """The known queues that the caller may see."""
        known = dict.fromkeys((*self.known_queues.names, *self.tenant_of))
        return [name for name in known if self.is_visible(request, name)]

    def open(self, request: HttpRequest, queue: str) -> QueueProducer:
        """A queue to add jobs to: it need not exist yet. A Problem if it is not the caller's,
        RefusedError if it cannot be a name."""
        check_queue_name(queue)
        if not self.is_visible(request, queue):
            raise Problem(QUEUE_NOT_FOUND)
        return QueueProducer(self.connection, queue, self.settings, check_data=check_payload(queue))

    async def existing(self, request: HttpRequest, queue: str) -> QueueProducer:
        """A queue that exists, or that the settings name. A Problem for any other."""
        opened = self.open(request, queue)
        if queue not in self.known_queues.names and queue not in self.tenant_of:
            meta = Keys(queue, self.settings.prefix).meta
            if not cast(int, await self.connection.call("EXISTS", meta)):
                raise Problem(QUEUE_NOT_FOUND)
            self.known_queues.add(queue)
        return opened
