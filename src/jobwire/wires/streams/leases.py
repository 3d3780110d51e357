"""Keeps this worker's leases: asks the server to reset their clocks, from a thread (J-32).

Made by the engine, used by the worker's keeper thread. It has a blocking socket of its own, so a
handler that blocks the event loop keeps its lease. It renews only what is still ours.
"""

from collections.abc import Sequence
from typing import Final, cast

from jobwire.job.messages import Held, KeepAnswer
from jobwire.valkey import Arg, Config, ValkeyError
from jobwire.valkey.thread import ThreadSocket
from jobwire.wires.streams.contract import Keys
from jobwire.wires.streams.replies import ground_error, wire_text
from jobwire.wires.streams.scripts import script
from jobwire.wires.streams.settings import StreamsSettings

_KEEP: Final = script("keep")
_BATCH: Final = 500
_ANSWERS: Final = {answer.value: answer for answer in KeepAnswer}


class StreamsKeeper:
    def __init__(self, config: Config, settings: StreamsSettings, consumer: str) -> None:
        self.lease_s = settings.lease_s
        self.period_s = settings.lease_s / 3
        self._consumer = consumer
        self._declared = (Keys(settings.key_prefix).queue,)
        # One call that hangs must leave time for another before the lease is over.
        patience_s = min(config.read_timeout_s, settings.lease_s / 4)
        self._socket = ThreadSocket(config, "jobwire-keeper", timeout_s=patience_s)

    def keep(self, batch: Sequence[Held]) -> list[KeepAnswer]:
        """Renew them all; GroundError if the server did not answer."""
        answers: list[KeepAnswer] = []
        for at in range(0, len(batch), _BATCH):
            args: list[Arg] = [self._consumer]
            for held in batch[at : at + _BATCH]:
                args += (wire_text(held.job.id), cast(str, held.wire), held.token)
            try:
                reply = self._socket.run(_KEEP, self._declared, args)
            except ValkeyError as error:
                raise ground_error(error) from error
            answers += [_ANSWERS[word] for word in cast("list[str]", reply)]
        return answers

    def close(self) -> None:
        self._socket.close()
