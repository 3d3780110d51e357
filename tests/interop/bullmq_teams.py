"""Programs of other teams with an official BullMQ package, one process for each kind."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, Final

from tests.interop.bullmq_lab import Peer
from tests.support.thirdparty import NODE, node_packages, python_packages

OURS: Final = "jobwire"
TEAMS: Final = ("node6", "node5", "py")
ALL: Final = (*TEAMS, OURS)
PLAIN: Final = "plain"
"""Written from the published contract alone, without a package."""
_HERE: Final = Path(__file__).parent


class Fleet:
    """One program per kind of client, each a producer and a worker of the queues it is given."""

    def __init__(self, url: str, *teams: str) -> None:
        self.url = url
        self.teams = {team: self._started(team) for team in teams or TEAMS}
        self._locks = {team: asyncio.Lock() for team in self.teams}

    def _started(self, team: str) -> Peer:
        plain = self.url.replace("valkey:", "redis:")
        if team == PLAIN:
            return Peer([sys.executable, _HERE / "python" / "bullmq_plain.py", plain])
        if team == "py":
            path = os.pathsep.join([str(python_packages())])
            command = [sys.executable, _HERE / "python" / "bullmq_fleet.py", plain]
            return Peer(command, PYTHONPATH=path)
        node = [NODE, _HERE / "node" / "bullmq_fleet.js", node_packages(), plain]
        return Peer([*node, team.removeprefix("node")])

    async def ask(self, team: str, op: str, **more: Any) -> Any:
        """Call a program, which handles one call at a time."""
        async with self._locks[team]:
            return await asyncio.to_thread(self.teams[team].do, {"op": op, **more})

    async def kill(self, team: str) -> None:
        """kill -9 of a team's program, and start another one. A call in flight fails."""
        self.teams[team].kill()
        async with self._locks[team]:
            await asyncio.to_thread(self.teams[team].close)
            self.teams[team] = await asyncio.to_thread(self._started, team)

    def close(self) -> None:
        for peer in self.teams.values():
            peer.close()
