"""What may travel over the seam."""

import pytest

from jobwire.job.messages import RESERVED_KINDS, check_kind
from jobwire.job.states import State


@pytest.mark.parametrize("kind", ["progress", "log", "a", "tool_call", "x.y-z2", "a" * 64])
def test_a_handler_may_name_its_reports(kind: str) -> None:
    assert check_kind(kind) == kind


@pytest.mark.parametrize("kind", ["", "A", "2x", "a b", "ä", "a\n", "a" * 65, "_x"])
def test_a_name_that_no_wire_could_carry_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="cannot name a report"):
        check_kind(kind)


@pytest.mark.parametrize("kind", sorted(RESERVED_KINDS))
def test_no_handler_can_emit_a_reserved_kind(kind: str) -> None:
    with pytest.raises(ValueError, match="reserved for jobwire"):
        check_kind(kind)


def test_every_state_but_waiting_is_reserved() -> None:
    assert {state.value for state in State} - RESERVED_KINDS == {"waiting"}
