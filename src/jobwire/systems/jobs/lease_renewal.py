"""Renews this worker's leases from a thread (J-32).

Created by the engine, used by the worker's renewal thread. It has a blocking socket of its own, so
a handler that blocks the event loop keeps its lease, and its worker stays registered. The script
renews only leases that this worker still holds.
"""

from collections.abc import Iterator, Sequence
from typing import Final, cast

from jobwire.job.messages import LeasedJob, Outcome, RenewAnswer
from jobwire.systems.jobs import settle_args
from jobwire.systems.jobs.contract import DEFAULT_QUEUE, StreamsKeys
from jobwire.systems.jobs.own_registration import OwnRegistration
from jobwire.systems.jobs.replies import backend_unavailable
from jobwire.systems.jobs.scripts import script
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.jobs.settle_args import select_queue_args
from jobwire.valkey import Arg, Config, Reply, Script, ValkeyError
from jobwire.valkey.blocking_socket import BlockingSocket

RENEW_LEASE: Final = script("renew_lease")
_HEARTBEAT: Final = script("heartbeat")
_BATCH: Final = 500
_ANSWERS: Final = {answer.value: answer for answer in RenewAnswer}


class StreamsLeaseRenewer:
    def __init__(
        self,
        config: Config,
        settings: StreamsSettings,
        consumer: str,
        registration: OwnRegistration,
    ) -> None:
        self.lease_s = settings.lease_s
        self.period_s = settings.lease_s / 3
        self.heartbeat_s = settings.heartbeat_s
        self._settings = settings
        self._consumer = consumer
        self._registration = registration
        self._declared = (StreamsKeys(settings.key_prefix).queue,)
        # A call that hangs must leave time for another one before the lease expires.
        timeout_s = min(config.read_timeout_s, settings.lease_s / 4)
        self._socket = BlockingSocket(config, "jobwire-lease-renewer", timeout_s=timeout_s)

    def renew(self, batch: Sequence[LeasedJob]) -> list[RenewAnswer]:
        """Renew all of them; BackendUnavailable if the server did not answer."""
        answers: list[RenewAnswer] = []
        for args in renew_args(self._consumer, batch):
            answers += read_renewed(self._run(RENEW_LEASE, args))
        return answers

    @property
    def heartbeat_is_late(self) -> bool:
        return self._registration.is_late

    def heartbeat(self) -> None:
        """Write the registration where the event loop is late with it."""
        if self.heartbeat_is_late:
            self._run(_HEARTBEAT, self._registration.arguments())
            self._registration.written()

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]]) -> None:
        """Settle them as the engine does; the scripts check the leases."""
        head = settle_args.head(self._settings, self._consumer)
        for verb, _, args in settle_args.calls(batch, self._settings, _BATCH):
            self._run(verb, [*head, *args])

    def close(self) -> None:
        self._socket.close()

    def _run(self, verb: Script, args: Sequence[Arg]) -> Reply:
        try:
            return self._socket.run(verb, self._declared, args)
        except ValkeyError as error:
            raise backend_unavailable(error) from error


def renew_args(consumer: str, batch: Sequence[LeasedJob]) -> Iterator[list[Arg]]:
    """Arguments of `renew_lease`, one list per call."""
    for at in range(0, len(batch), _BATCH):
        args: list[Arg] = [consumer]
        selected = DEFAULT_QUEUE
        for leased in batch[at : at + _BATCH]:
            if leased.job.source != selected:
                selected = leased.job.source
                args += select_queue_args(selected, 3)
            args += (leased.job.id, cast(str, leased.wire), leased.token)
        yield args


def read_renewed(reply: Reply) -> list[RenewAnswer]:
    """The reply to `renew_lease`."""
    return [_ANSWERS[word] for word in cast("list[str]", reply)]
