"""Bounds of options are those of the requests, whose types commands do not load for their help."""

from __future__ import annotations

import click
import pytest

from jobwire.api import flows, jobs, queue_jobs
from jobwire.cli import queue_bullmq, queue_flows, submit


@pytest.mark.parametrize(
    ("command", "option", "most"),
    [
        (submit.command, "max_attempts", jobs.MAX_ATTEMPTS),
        (queue_bullmq.jobs, "limit", queue_jobs.MAX_PAGE),
        (queue_flows.schedulers, "limit", queue_jobs.MAX_PAGE),
        (queue_flows.flow, "depth", flows.MAX_DEPTH),
        (queue_flows.flow, "width", flows.MAX_WIDTH),
    ],
)
def test_an_option_has_the_bounds_of_the_request(
    command: click.Command, option: str, most: int
) -> None:
    (found,) = [parameter for parameter in command.params if parameter.name == option]
    assert isinstance(found.type, click.IntRange)
    assert (found.type.min, found.type.max) == (1, most)
