"""Runs the engines' duties: each in its own rhythm, in every process of ours (J-41).

Workers and gateways have one, started after their engines. There is no leader: what the fleet must
do once a period is guarded by the duties themselves. A duty that fails is tried again in its next
period; nothing it does may end the process that runs it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from jobwire.job.engine import MaintenanceTask
from jobwire.job.errors import BackendUnavailable
from jobwire.job.ids import random_fraction

_log = logging.getLogger("jobwire.maintenance")

_BREATH_S: Final = 0.01
"""Between the turns of a round that is not over: others want the server, too."""


class Maintenance:
    """`async with asyncio.TaskGroup() as group: group.create_task(Duties(…).run())`."""

    def __init__(
        self,
        duties: Sequence[MaintenanceTask],
        *,
        chance: Callable[[], float] = random_fraction,
        done: Counter[str] | None = None,
    ) -> None:
        """`done` counts how many things each duty has put right; for metrics."""
        self._duties = tuple(duties)
        self._chance = chance
        self.done: Counter[str] = Counter() if done is None else done

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for duty in self._duties:
                group.create_task(self._keep_doing(duty), name=f"duty: {duty.name}")

    async def _keep_doing(self, duty: MaintenanceTask) -> None:
        # Processes that start together must not come to the server together.
        await asyncio.sleep(duty.period_s * self._chance())
        failing = False
        while True:
            more = False
            try:
                turn = await duty.run()
                if turn is not None:
                    self.done[duty.name] += turn.done
                    more = turn.more
                failing = False
            except BackendUnavailable as error:
                if not failing:
                    _log.warning("duty %s waits for the server: %s", duty.name, error.detail)
                failing = True
            except Exception:  # noqa: BLE001 - a duty may not end the process that runs it
                _log.exception("duty %s failed; it is tried again", duty.name)
            await asyncio.sleep(
                _BREATH_S if more else duty.period_s * (0.75 + 0.5 * self._chance())
            )
