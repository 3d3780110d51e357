"""What an installation may choose about the Streams wire; checked all at once when built.

Read by `jobwire.settings`, handed to the queue and the engine. It knows names of variables and
limits, nothing of where it is used.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, Self

from jobwire.job.errors import RefusedError
from jobwire.wires.streams import contract

_VARIABLES: Final = {
    "job_ttl_s": "JOB_TTL_S",  # the source's own name
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsSettings:
    key_prefix: str = ""
    """Goes in front of every key; a hash tag in it keeps the wire in one slot of a cluster."""
    job_ttl_s: int = contract.DEFAULT_TTL_S
    """How long a job's keys live after their last change, where the order does not say."""
    max_queue: int = contract.MAX_QUEUE
    """More waiting jobs than this are refused."""
    max_events: int = contract.MAX_EVENTS
    """Events kept of one job; reports beyond it are dropped."""
    lease_s: float = 30.0
    """How long a worker may be silent before its jobs are taken over."""
    foreign_idle_s: float = 900.0
    """The same for workers that are not ours, of whom nobody asks to renew a lease."""
    max_deliveries: int = 5
    """How many workers may die over a job before it is ended."""
    unknown_task_grace_s: float = 60.0
    """How long a job whose task no worker has is kept for one that may come."""
    heartbeat_s: float = 10.0
    """How often a worker says that it lives."""
    store_tracebacks: bool = False
    """Whether a failed job's hash also holds the traceback, for everybody who may read it."""

    def __post_init__(self) -> None:
        if problems := self.check():
            raise RefusedError("; ".join(problems), code="bad_settings", status=500)

    def check(self) -> list[str]:
        """Every fault, each with the variable's name."""
        limits: dict[str, tuple[float, float]] = {
            "job_ttl_s": (1, contract.MAX_TTL_S),
            "max_queue": (1, 10**9),
            "max_events": (10, 10**6),
            "lease_s": (0.1, 86_400),
            "foreign_idle_s": (0.1, contract.MAX_TTL_S),
            "max_deliveries": (1, 10**6),
            "unknown_task_grace_s": (0, contract.MAX_TTL_S),
            "heartbeat_s": (0.05, 3_600),
        }
        problems: list[str] = []
        for name, (low, high) in limits.items():
            value: float = getattr(self, name)
            if not low <= value <= high:
                problems.append(f"{variable(name)}={value} must lie between {low} and {high}")
        if not self.key_prefix.isprintable() or len(self.key_prefix) > 200:
            problems.append(f"{variable('key_prefix')} must be printable, at most 200 characters")
        return problems

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> Self:
        """Built from the environment's variables; all that cannot be read is told at once."""
        kinds = {"int": int, "float": float, "str": str, "bool": _truth}
        values: dict[str, object] = {}
        problems: list[str] = []
        for one in fields(cls):
            text = env.get(variable(one.name))
            if text is None:
                continue
            try:
                values[one.name] = kinds[str(one.type)](text)
            except ValueError:
                problems.append(f"{variable(one.name)}={text!r} is not a {one.type}")
        if problems:
            raise RefusedError("; ".join(problems), code="bad_settings", status=500)
        return cls(**values)  # pyright: ignore[reportArgumentType] - each read by its own type


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return _VARIABLES.get(name, f"JOBWIRE_{name.upper()}")


def _truth(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]
