"""Renews the locks of all queues of a worker from a thread (B-3, B-14).

`WorkerConnections` creates one for all engines, used by the worker's renewal thread. It has a
blocking socket of its own, so a handler that blocks the event loop keeps its lock.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from jobwire.job.messages import LeasedJob, Outcome, RenewAnswer
from jobwire.systems.queues.clock import NowMs, system_now_ms
from jobwire.systems.queues.contract import CANCELED, Keys
from jobwire.systems.queues.leased_jobs import settle_call
from jobwire.systems.queues.replies import is_of_keys, raises_unavailable, unavailable
from jobwire.systems.queues.scripts import script
from jobwire.systems.queues.settings import BullSettings
from jobwire.valkey import Arg, Config, Reply, ValkeyError
from jobwire.valkey.blocking_socket import BlockingSocket

_log = logging.getLogger("jobwire.bullmq")
_BATCH: Final = 500


class BullLeaseRenewer:
    heartbeat_is_late = False

    def __init__(
        self, config: Config, settings: BullSettings, now_ms: NowMs = system_now_ms
    ) -> None:
        self.lease_s = settings.lock_ms / 1000
        self.period_s = settings.renew_every_ms / 1000
        self.heartbeat_s = self.period_s
        self._settings = settings
        self._now_ms = now_ms
        # A call that hangs must leave time for another one before the lock expires.
        timeout_s = min(config.read_timeout_s, self.lease_s / 4)
        self._socket = BlockingSocket(config, "jobwire-lease-renewer", timeout_s=timeout_s)

    def renew(self, batch: Sequence[LeasedJob]) -> list[RenewAnswer]:
        """Renew all of them, one call per queue."""
        queues: dict[str, list[LeasedJob]] = {}
        for leased in batch:
            queues.setdefault(leased.job.source, []).append(leased)
        answers: dict[str, RenewAnswer] = {}
        for queue, jobs in queues.items():
            for at in range(0, len(jobs), _BATCH):
                answers |= self._renew(queue, jobs[at : at + _BATCH])
        return [answers[leased.token] for leased in batch]

    def _renew(self, queue: str, jobs: Sequence[LeasedJob]) -> Mapping[str, RenewAnswer]:
        settings = self._settings
        keys = (Keys(queue, settings.prefix).meta,)
        args: list[Arg] = [self._now_ms(), int(settings.extras), settings.lock_ms, CANCELED]
        for leased in jobs:
            args += (leased.job.id, leased.token)
        try:
            reply = self._socket.run(script("renew"), keys, args)
        except ValkeyError as error:
            return renewal_refused(queue, jobs, error)
        return read_renewed(jobs, reply)

    def heartbeat(self) -> None:
        """Nothing to do: a worker is known by its connections."""

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]]) -> None:
        """Settle them as the engine does; the scripts check the locks."""
        settings = self._settings
        with raises_unavailable():
            for leased, outcome in batch:
                verb, args = settle_call(leased, outcome, settings)
                keys = (Keys(leased.job.source, settings.prefix).meta,)
                head = (self._now_ms(), int(settings.extras))
                self._socket.run(script(verb), keys, (*head, *args))

    def close(self) -> None:
        self._socket.close()


def read_renewed(jobs: Iterable[LeasedJob], reply: Reply) -> dict[str, RenewAnswer]:
    """The reply to `renew`, by token."""
    lost, canceled = (set(tokens) for tokens in cast("tuple[list[str], list[str]]", reply))
    return {
        leased.token: (
            RenewAnswer.LOST
            if leased.token in lost
            else RenewAnswer.CANCEL
            if leased.token in canceled
            else RenewAnswer.RENEWED
        )
        for leased in jobs
    }


def renewal_refused(
    queue: str, jobs: Iterable[LeasedJob], error: ValkeyError
) -> dict[str, RenewAnswer]:
    """The answers where the server refuses the keys of one queue; raises the error otherwise."""
    if not is_of_keys(error):
        raise unavailable(error) from error
    _log.error(
        "locks were not renewed queue=%(queue)s error=%(error)s; will retry",
        {"queue": queue, "error": error},
    )
    return {leased.token: RenewAnswer.REFUSED for leased in jobs}
