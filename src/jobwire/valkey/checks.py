"""Checks of constructor arguments; a ConfigError names the field."""

from jobwire.valkey.errors import ConfigError


def check_text(field: str, value: str) -> None:
    """Reject an empty name."""
    if not value:
        raise ConfigError(field, "is empty")


def check_duration(field: str, value_s: float) -> None:
    """Reject a duration that is not positive and finite."""
    # NaN compares false with everything, hence the form of this test.
    if not 0 < value_s < float("inf"):
        raise ConfigError(field, f"must be a positive number of seconds, is {value_s}")


def check_count(field: str, value: int) -> None:
    """Reject a number below one."""
    if value < 1:
        raise ConfigError(field, f"must be at least 1, is {value}")


def check_callable(field: str, value: object) -> None:
    """Reject a value that is not callable."""
    if not callable(value):
        raise ConfigError(field, f"must be callable, is {type(value).__name__}")


def check_client(client: object, *operations: str) -> None:
    """Reject a missing client, and one without the operations that are needed."""
    if client is None:
        raise ConfigError("connection", "is missing; open one with Connection.open()")
    if missing := [name for name in operations if not callable(getattr(client, name, None))]:
        raise ConfigError(
            "connection", f"{type(client).__name__} has no method {', '.join(missing)}"
        )
