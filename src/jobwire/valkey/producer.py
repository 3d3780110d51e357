"""Adds entries to streams.

Nothing is retried here: the class of the error shows whether the entry may have been added.
"""

from collections.abc import Mapping

from jobwire.valkey.checks import check_client
from jobwire.valkey.operations import Client
from jobwire.valkey.resp_socket import Arg


class Producer:
    """`Producer(connection)`, or any other implementation of `Client`."""

    def __init__(self, client: Client) -> None:
        check_client(client, "xadd")
        self._client = client

    async def publish(self, stream: str, fields: Mapping[str, Arg]) -> str:
        """Add an entry; returns its id."""
        return await self._client.xadd(stream, fields)

    async def publish_with_trim(
        self, stream: str, maxlen: int, fields: Mapping[str, Arg], *, approximate: bool = False
    ) -> str:
        """Add an entry and delete the oldest ones beyond `maxlen`, in one step.

        Exact unless `approximate`, which is cheaper and may keep some more entries.
        """
        return await self._client.xadd_maxlen(stream, maxlen, fields, approximate=approximate)
