"""G-26: what is left of jobs whose last writes had not reached the replica that takes over."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlsplit

from jobwire.job.messages import (
    CancelOutcome,
    Done,
    JobId,
    JobRequest,
    LeasedJob,
    SettleAnswer,
    Submitted,
)
from jobwire.local import LocalValkey
from jobwire.local.valkey import ADMIN, PASSWORD_FILE
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.valkey import Connection
from tests.conformance.lab import TASK
from tests.support import Proxy, clause, wait_until
from tests.support.raw import Raw
from tests.support.servers import plain_client
from tests.support.streams import StreamsLab


class Pair:
    """A primary and a replica; programs reach the one that serves through `front`."""

    def __init__(self, folder: Path) -> None:
        self.primary = LocalValkey(folder / "primary", admin=True).start()
        self._link = Proxy(self.primary.port).start()
        self.front = Proxy(self.primary.port).start()
        self.replica = LocalValkey(folder / "replica", admin=True, extra=self._follow(folder))
        self.replica.start()

    def _follow(self, folder: Path) -> list[str]:
        (folder / "replica").mkdir()
        (folder / "replica" / PASSWORD_FILE).write_text(self.primary.password)
        (folder / "replica" / PASSWORD_FILE).chmod(0o600)
        login = urlsplit(self.primary.admin_url).password
        return [
            f"replicaof 127.0.0.1 {self._link.port}",
            *(f"masteruser {ADMIN}", f"masterauth {login}", "repl-diskless-sync-delay 0"),
        ]

    async def cut_off_in_step(self) -> None:
        """From now on the replica gets nothing; it has all that was written before."""
        with plain_client(self.primary) as primary, plain_client(self.replica) as replica:
            primary.set("mark", "1", ex=60)
            await wait_until(lambda: replica.exists("mark"), "the replica to be in step")
        self._link.silence()

    def fail_over(self) -> None:
        self.primary.kill()
        with plain_client(self.replica) as plain:
            plain.replicaof("NO", "ONE")
        self.front.upstream = self.replica.port
        self.front.cut()

    def stop(self) -> None:
        for proxy in (self._link, self.front):
            proxy.stop()
        for server in (self.replica, self.primary):
            server.stop()


@contextlib.contextmanager
def pair(folder: Path) -> Generator[Pair]:
    opened = Pair(folder)
    try:
        yield opened
    finally:
        opened.stop()


async def _running(lab: StreamsLab, worker: StreamsEngine) -> LeasedJob:
    await lab.submit()
    (leased,) = await worker.take(1)
    return leased


async def _settled(worker: StreamsEngine, leased: LeasedJob) -> list[SettleAnswer]:
    return (await worker.settle([(leased, Done('"ok"'))], 0)).answers


@clause("G-26")
async def test_g26_what_a_failover_leaves_of_lost_writes(tmp_path: Path) -> None:
    keyed = JobRequest(TASK, '{"a":1}', idempotency_key="order-1")
    with pair(tmp_path) as servers:
        async with (
            Connection.open(servers.front.url(servers.primary.url)) as connection,
            StreamsLab(connection) as lab,
        ):
            worker = await lab.worker()
            settle_lost = await _running(lab, worker)
            cancel_lost = await _running(lab, worker)
            take_lost = await lab.submit()
            await servers.cut_off_in_step()

            submit_lost = await lab.queue.submit(keyed)
            assert isinstance(submit_lost, Submitted)
            (first_run,) = [each for each in await worker.take(1) if each.job.id == take_lost]
            assert await _settled(worker, first_run) == [SettleAnswer.SETTLED]
            assert await _settled(worker, settle_lost) == [SettleAnswer.SETTLED]
            wish = await lab.queue.cancel(JobId(cancel_lost.job.id))
            assert wish is CancelOutcome.REQUESTED
            opened = connection.sockets_opened
            servers.fail_over()
            await wait_until(lambda: connection.sockets_opened > opened, "the new primary")

            # A submission: the job is gone, and its key makes another one.
            assert await lab.queue.record(submit_lost.job_id) is None
            again = await lab.queue.submit(keyed)
            assert isinstance(again, Submitted)
            assert again.job_id != submit_lost.job_id
            # Only the result: its worker's token is still valid.
            assert await _settled(worker, settle_lost) == [SettleAnswer.SETTLED]
            # A wish to cancel: the job goes on.
            assert await _settled(worker, cancel_lost) == [SettleAnswer.SETTLED]
            # A start and its result: the token is unknown, and the job runs once more.
            assert await _settled(worker, first_run) == [SettleAnswer.LOST]
            (second_run,) = [each for each in await worker.take(1) if each.job.id == take_lost]
            assert await _settled(worker, second_run) == [SettleAnswer.SETTLED]

        with plain_client(servers.replica) as plain:
            raw = Raw(plain)
            for job_id in (settle_lost.job.id, cancel_lost.job.id, take_lost):
                kinds = [fields["type"] for _, fields in raw.entries(f"job:{job_id}:events")]
                assert kinds == ["queued", "running", "done"], "one end on the surviving history"
                assert "cancel_ts" not in raw.fields(f"job:{job_id}")
