"""Adds entries to streams; as thin as it looks.

For programs that publish. Nothing is retried here: a caller whose connection broke knows from
the error whether the entry may be there.
"""

from collections.abc import Mapping

from jobwire.valkey.operations import Client
from jobwire.valkey.resp_socket import Arg


class Producer:
    """`Producer(connection)`; works on anything that keeps the promise of `Client`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def publish(self, stream: str, fields: Mapping[str, Arg]) -> str:
        """Add an entry; returns its id."""
        return await self._client.xadd(stream, fields)

    async def publish_with_trim(
        self, stream: str, maxlen: int, fields: Mapping[str, Arg], *, approximate: bool = False
    ) -> str:
        """Add an entry and drop the oldest ones beyond `maxlen`, in one step.

        Exact unless `approximate`, which is cheaper and may leave some entries more.
        """
        return await self._client.xadd_maxlen(stream, maxlen, fields, approximate=approximate)
