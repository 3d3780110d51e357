"""The examples of every operation have the types that the operation declares."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, cast

import msgspec
import pytest

from jobwire import api
from jobwire.api.operation import Either, Operation
from tests.support import clause

MODULES = [
    importlib.import_module(f"{api.__name__}.{m.name}") for m in pkgutil.iter_modules(api.__path__)
]
OPERATIONS: dict[str, Operation[Any]] = {
    f"{module.__name__.rpartition('.')[2]}.{name}": value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, Operation)
}


def decoded(example: object, kind: Any) -> object:
    return msgspec.json.decode(msgspec.json.encode(example), type=kind)


@clause("O-9")
@pytest.mark.parametrize("name", OPERATIONS)
def test_o09_the_examples_of_an_operation_have_its_types(name: str) -> None:
    operation = OPERATIONS[name]
    if operation.example is not None:
        decoded(operation.example, operation.answer)
    if operation.body_example is None:
        return
    body = operation.takes if operation.body is None else operation.body
    if isinstance(body, Either):
        members = cast("dict[str, object]", operation.body_example)
        body = body.given if body.by in members else body.other
    decoded(operation.body_example, body)


def test_operations_are_found() -> None:
    assert {"jobs.LIST", "queues.LIST", "flows.ADD"} <= OPERATIONS.keys()
