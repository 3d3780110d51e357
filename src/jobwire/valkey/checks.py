"""Checks of what the toolkit's objects are built with: a ConfigError that names the field."""

from jobwire.valkey.errors import ConfigError


def check_text(field: str, value: str) -> None:
    """Refuse an empty name."""
    if not value:
        raise ConfigError(field, "is empty")


def check_duration(field: str, value_s: float) -> None:
    """Refuse what is no time to wait."""
    # NaN compares false with everything, hence the form of this test.
    if not 0 < value_s < float("inf"):
        raise ConfigError(field, f"must be a positive number of seconds, is {value_s}")


def check_count(field: str, value: int) -> None:
    """Refuse less than one."""
    if value < 1:
        raise ConfigError(field, f"must be at least 1, is {value}")


def check_callable(field: str, value: object) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise ConfigError(field, f"must be callable, is {type(value).__name__}")
