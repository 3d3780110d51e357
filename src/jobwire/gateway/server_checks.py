"""Health of servers without which a gateway still does most of its work: shards, a server of their
own for queues. The program checks the first server itself."""

from collections.abc import Callable, Mapping

from jobwire.gateway.health import Check, HealthStatus


def connected_check(name: str, servers: Mapping[str, Callable[[], bool]]) -> Check:
    """/readyz is degraded while one of the servers, by the names that the operator knows, is not
    connected."""

    async def run() -> HealthStatus:
        lost = [each for each, is_connected in servers.items() if not is_connected()]
        if not lost:
            return HealthStatus("ready")
        note = f"no connection to {', '.join(lost)}; requests that do not need it work"
        return HealthStatus("degraded", note, "is it running? the gateway reconnects automatically")

    return Check(name, run, quiet=True)
