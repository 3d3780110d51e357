"""Which fault comes when: a pure function of the seed, so that a run can be repeated.

Two injectors run at a time: one at the programs and their connections, one at the server. Each
shuffles its kinds and goes through all of them, so a short run has nearly all and a long one all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

AT_PROGRAMS: Final = (
    "kill",
    "freeze",
    "terminate",
    "cut",
    "cut_one",
    "refuse",
    "half_open",
    "delay",
    "cut_in_command",
    "lose_reply",
)
AT_SERVER: Final = (
    "server_killed",
    "server_stopped",
    "server_frozen",
    "write_torn",
    "memory_full",
    "read_only",
    "scripts_forgotten",
    "clients_dropped",
    "start_on_full",
    "start_on_read_only",
    "clock_jumps",
)
KINDS: Final = (*AT_PROGRAMS, *AT_SERVER)
AT_SERVER_ONLY: Final = tuple(kind for kind in AT_SERVER if not kind.startswith("start_on"))
"""Faults that touch no worker."""

_SCRIPTS: Final = (
    "take",
    "settle",
    "report",
    "retry",
    "release",
    "submit",
    "cancel",
    "renew_lease",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault and its parameters."""

    kind: str
    after_s: float
    """The pause before the fault."""
    leases: float
    """How long the fault lasts, in leases, if it lasts."""
    seat: int
    """The program that it hits; taken modulo the number of seats."""
    script: str
    """The script of the command, if the fault is about a command."""
    size: int
    """How many bytes still get through."""


def faults(seed: int, kinds: Sequence[str]) -> Iterator[Fault]:
    """Without end: the runner stops when its time is up."""
    random = Random(f"{seed} {kinds}")
    while kinds:
        for kind in random.sample(kinds, len(kinds)):
            yield Fault(
                kind,
                after_s=random.uniform(0.1, 0.9),
                leases=random.choice((0.3, 0.5, 1.6, 2.5)),
                seat=random.randrange(1000),
                script=random.choice(_SCRIPTS),
                size=random.randrange(1, 400),
            )
