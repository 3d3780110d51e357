"""Sample tools for the task `tool`, used only if an app registers none."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final


def add_numbers(a: float, b: float) -> float:
    """Add two numbers: the sum of a plus b."""
    return a + b


def subtract_numbers(from_number: float, minus_number: float) -> float:
    """Subtract two numbers: the difference of a minus b."""
    return from_number - minus_number


def multiply_numbers(a: float, b: float) -> float:
    """Multiply two numbers: the product of a times b."""
    return a * b


def divide_numbers(number: float, by_number: float) -> float:
    """Divide two numbers: the quotient of a divided by b."""
    return number / by_number


def current_time() -> str:
    """The current time and date, now."""
    return datetime.now(UTC).isoformat(timespec="seconds")


_FUNCTIONS: Final = (add_numbers, subtract_numbers, multiply_numbers, divide_numbers, current_time)
SAMPLES: Final[Mapping[str, Callable[..., object]]] = MappingProxyType(
    {each.__name__: each for each in _FUNCTIONS}
)
