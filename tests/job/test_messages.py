"""Names of reports in the Engine protocol."""

import pytest

from jobwire.job.messages import check_kind

RESERVED = frozenset({"done", "gap"})


@pytest.mark.parametrize("kind", ["progress", "log", "a", "tool_call", "x.y-z2", "a" * 64])
def test_a_handler_may_name_its_reports(kind: str) -> None:
    assert check_kind(kind, RESERVED) == kind


@pytest.mark.parametrize("kind", ["", "A", "2x", "a b", "ä", "a\n", "a" * 65, "_x", "=data"])
def test_an_invalid_name_of_a_report_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="cannot name a report"):
        check_kind(kind, RESERVED)


@pytest.mark.parametrize("kind", sorted(RESERVED))
def test_no_handler_can_emit_a_kind_that_its_engine_reserves(kind: str) -> None:
    with pytest.raises(ValueError, match="is reserved on this job's queue"):
        check_kind(kind, RESERVED)
    assert check_kind(kind, frozenset()) == kind, "another engine may allow it"
