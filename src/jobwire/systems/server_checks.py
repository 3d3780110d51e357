"""Health of servers without which a gateway still does most of its work: shards, a server of their
own for queues. The program checks the first server itself."""

from collections.abc import Mapping

from jobwire.gateway.health import Check, HealthStatus
from jobwire.valkey import Connection


def connected_check(name: str, servers: Mapping[str, Connection]) -> Check:
    """/readyz is degraded while one of the servers, by the names that the operator knows, has no
    connection."""

    async def run() -> HealthStatus:
        lost = [each for each, connection in servers.items() if not connection.connected]
        if not lost:
            return HealthStatus("ready")
        first = servers[lost[0]].config.address
        note = f"no connection to {', '.join(lost)} ({first}); requests that do not need it work"
        return HealthStatus("degraded", note, "is it running? the gateway reconnects automatically")

    return Check(name, run, quiet=True)
