"""A program: answers one question about a schema and a value, and ends.

`isolated.py` starts it with one end of a socket. The kernel ends it when it needs more CPU time or
memory than one honest check would.
"""

from __future__ import annotations

import resource
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from jobwire.json_schema.validator import SchemaValidator, UnusableSchema

_CPU_S: Final = 2
_MEMORY: Final = 512 << 20


class SchemaVerdict(msgspec.Struct, frozen=True):
    unusable: str = ""
    """Why the schema cannot be used."""
    fault: str = ""
    """What is wrong with the value, and where."""


class SchemaQuestion(msgspec.Struct, frozen=True):
    """Whether a schema can be used and, if there is a value, whether the value matches."""

    schema: Any
    values: Sequence[Any] = ()

    def matches(self) -> bool:
        """Whether all is well; UnusableSchema if the schema cannot be used."""
        return all(map(SchemaValidator(self.schema).is_valid, self.values))

    def verdict(self) -> SchemaVerdict:
        try:
            validator = SchemaValidator(self.schema)
        except UnusableSchema as error:
            return SchemaVerdict(unusable=str(error))
        for value in self.values:
            if (found := validator.fault(value)) is not None:
                place = "".join(f"[{part!r}]" for part in found.path)
                return SchemaVerdict(fault=f"{place or 'the value'}: {found.text}")
        return SchemaVerdict()


def main() -> None:
    for kind, most in (
        (resource.RLIMIT_CPU, _CPU_S),
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(ValueError, OSError):  # a lower limit is set already; macOS has no RLIMIT_AS
            resource.setrlimit(kind, (most, most))
    with socket.socket(fileno=int(sys.argv[1])) as line:
        text = line.makefile("rb").read()
        line.sendall(msgspec.json.encode(msgspec.json.decode(text, type=SchemaQuestion).verdict()))


if __name__ == "__main__":
    main()
