"""The examples of every operation have the types that the operation declares."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, cast

import msgspec
import pytest

from jobwire import api
from jobwire.api.operation import Either, Operation
from jobwire.client import calls
from jobwire.client.retry_budget import RetryBudget
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


@clause("O-9")
@pytest.mark.parametrize("name", OPERATIONS)
def test_o09_the_client_reads_every_member_of_an_answer(name: str) -> None:
    """A member of a later version is ignored."""
    operation = OPERATIONS[name]
    sent: object = msgspec.to_builtins(operation.example)
    if not isinstance(sent, dict) or operation.media_type != "application/json":
        return
    plan = calls.call(RetryBudget(1.0), operation, *("x" for _ in operation.parameters))
    request = next(plan)
    assert isinstance(request, calls.ApiRequest)
    assert (request.method, request.path.count("/")) == (
        operation.method,
        operation.path.count("/"),
    )
    members = cast("dict[str, object]", sent)
    body = msgspec.json.encode({**members, "of_a_later_version": 1})
    with pytest.raises(StopIteration) as done:
        plan.send(calls.ApiResponse(operation.status, body))
    assert lost(members, msgspec.to_builtins(done.value.value)) == []


def lost(sent: object, read: object, place: str = "") -> list[str]:
    """The places of the members that were sent and not read."""
    if isinstance(sent, dict) and isinstance(read, dict):
        members, known = cast("dict[str, object]", sent), cast("dict[str, object]", read)
        missing = [f"{place}/{name}" for name in members.keys() - known.keys()]
        both = members.keys() & known.keys()
        return missing + [
            each for name in both for each in lost(members[name], known[name], f"{place}/{name}")
        ]
    if isinstance(sent, list) and isinstance(read, list):
        pairs = zip(cast("list[object]", sent), cast("list[object]", read), strict=True)
        return [each for one, other in pairs for each in lost(one, other, f"{place}/0")]
    return [] if sent == read else [place]


def test_operations_are_found() -> None:
    assert {"jobs.LIST", "queues.LIST", "flows.ADD"} <= OPERATIONS.keys()
