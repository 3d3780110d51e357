"""Two sample tools for the task `tool`, used only if an app registers none."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final


def add_numbers(a: float, b: float) -> float:
    """Add two numbers: the sum of a plus b."""
    return a + b


def current_time() -> str:
    """The current time and date, now."""
    return datetime.now(UTC).isoformat(timespec="seconds")


SAMPLES: Final[Mapping[str, Callable[..., object]]] = MappingProxyType(
    {each.__name__: each for each in (add_numbers, current_time)}
)
