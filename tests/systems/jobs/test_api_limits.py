"""What `api/jobs.py` writes again is what the wire has."""

from __future__ import annotations

from typing import get_args

from jobwire.api import jobs as api
from jobwire.job.errors import ContractError
from jobwire.systems.jobs import contract


def test_the_words_and_limits_of_the_api_are_those_of_the_wire() -> None:
    assert set(api.STATUSES) == set(get_args(api.StatusName)) == set(contract.Status)
    assert api.DEFAULT_QUEUE == contract.DEFAULT_QUEUE
    assert contract.QUEUE_NAME.pattern == api.QUEUE_NAME
    assert api.MAX_TTL_S == contract.MAX_TTL_S
    assert api.MAX_PAYLOAD_BYTES == contract.MAX_PAYLOAD_BYTES
    violated = api.CONTRACT_VIOLATED
    assert (violated.code, violated.status) == (ContractError.code, ContractError.status)
