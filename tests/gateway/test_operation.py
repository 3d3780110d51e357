"""Operations as values: what contradicts itself is refused; the URL of a request."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from msgspec import Struct

from jobwire.api import gateway
from jobwire.api.operation import Operation
from jobwire.api.problems import UNAVAILABLE
from jobwire.doctor.finding import Verdict
from jobwire.gateway.health import State
from jobwire.job.errors import BackendUnavailable


class Gadget(Struct, forbid_unknown_fields=True):
    name: str


def operation(path: str = "/gadgets", access: Any = "read", **more: Any) -> Operation[Any]:
    return Operation[Any]("POST", path, access, "x", tag="x", **more)


@pytest.mark.parametrize(
    ("faulty", "expected"),
    [
        ({"access": "everyone"}, "neither a scope"),
        ({"body": Gadget, "takes": dict}, "only one of body, takes and binary"),
        ({"binary": ["image/png"], "takes": dict}, "only one of body, takes and binary"),
        ({"path": "/{id}/{id}"}, "declared twice"),
        ({"path": "/{id}", "parameter_types": {"name": str}}, "has no path parameter name"),
    ],
)
def test_an_operation_that_contradicts_itself_is_refused(
    faulty: dict[str, Any], expected: str
) -> None:
    with pytest.raises(TypeError, match=expected):
        operation(**faulty)


class Wanted(Struct):
    limit: int = 1
    kind: str | None = None
    text: str = ""


def test_the_url_of_a_request() -> None:
    one = operation(path="/gadgets/{id}/parts/{part}")
    assert one.parameters == ("id", "part")
    assert one.url("a/b ?", "7") == "/gadgets/a%2Fb%20%3F/parts/7"
    listed = operation(query=Wanted)
    assert listed.url(limit=5, kind=None, text="ü") == "/gadgets?limit=5&text=%C3%BC"
    assert operation().url() == "/gadgets"
    with pytest.raises(TypeError, match="has the parameters"):
        one.url("7")
    with pytest.raises(TypeError, match="has no query parameter lmit"):
        listed.url(lmit=5)


def test_a_kind_that_has_an_exception_is_the_same() -> None:
    """`api` imports nothing of ours, and so has the code and the status again."""
    assert UNAVAILABLE.code == BackendUnavailable.code
    assert UNAVAILABLE.status == BackendUnavailable.status


def test_the_words_of_the_api_are_those_of_the_programs() -> None:
    assert get_args(State) == gateway.STATES
    assert get_args(Verdict) == gateway.VERDICTS
