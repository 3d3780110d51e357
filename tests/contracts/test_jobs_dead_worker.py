"""J-34: the leases of a worker whose process is known to be dead expire at once."""

from __future__ import annotations

import socket

from jobwire.job.messages import (
    Done,
    JobRequest,
    LeasedJob,
    SettleAnswer,
    Submitted,
    TaskDefinition,
)
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.valkey import Connection
from tests.support import clause
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

PID = 4_000_001
TASKS = [TaskDefinition("resize")]


@clause("J-34")
async def test_j34_only_the_leases_of_the_dead_process_expire(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, lease_s=3_600.0, foreign_idle_s=3_600.0) as lab:
        prefix = f"jobwire-{socket.gethostname()}-"
        names = (f"{prefix}{PID}-dead", f"{prefix}{PID}1-alive", f"jobwire-other-{PID}-alive")
        leased: list[tuple[StreamsEngine, LeasedJob]] = []
        for name in names:
            worker = StreamsEngine(connection, lab.settings, consumer=name)
            await worker.register(TASKS, slots=1)
            answer = await lab.queue.submit(JobRequest("resize", "{}"))
            assert isinstance(answer, Submitted)
            (job,) = await worker.take(1)
            leased.append((worker, job))
        heir = StreamsEngine(connection, lab.settings, replaces_pid=PID)
        await heir.register(TASKS, slots=10)
        assert await heir.wait(1.0), "it does not wait for a new job"
        (taken,) = await heir.take(10)
        assert taken.job.id == leased[0][1].job.id
        assert taken.job.deliveries == 2, "the delivery that ended in a crash counts"
        assert not raw.exists(f"jobs:worker:{names[0]}")
        answers = [(await worker.settle([(job, Done("1"))], 0)).answers for worker, job in leased]
        assert answers == [[SettleAnswer.LOST], [SettleAnswer.SETTLED], [SettleAnswer.SETTLED]]
        assert (await heir.settle([(taken, Done("2"))], 0)).answers == [SettleAnswer.SETTLED]
        for worker in (*(each[0] for each in leased), heir):
            await worker.deregister()
