"""Many jobs in one script: each is decided as if it were alone."""

from __future__ import annotations

import asyncio
from typing import cast

from jobwire.local.valkey import LocalValkey
from jobwire.systems.queues import settle_args
from jobwire.systems.queues.add_batcher import Added, Duplicate
from jobwire.systems.queues.codec import BrokenJob, Empty, JobHash, TakeAnswer, Took
from jobwire.systems.queues.consumer import SettledAttempt
from jobwire.systems.queues.contract import Refusal
from jobwire.systems.queues.options import BullJobOptions, Parent
from jobwire.systems.queues.queue import QueueProducer
from jobwire.systems.queues.settle_args import FailedAttempt
from jobwire.valkey import Connection, ServerError
from tests.support import Plain, clause
from tests.systems.queues.conftest import KEY, QUEUE, Site


async def take(site: Site, count: int) -> list[TakeAnswer]:
    return await site.consumer.take_many([f"t{number}" for number in range(1, count + 1)])


async def started(site: Site, count: int) -> list[tuple[JobHash, str]]:
    answers = await take(site, count)
    jobs = [answer.job for answer in answers if isinstance(answer, Took)]
    assert len(jobs) == count
    return [(job, f"t{number}") for number, job in enumerate(jobs, 1)]


def names(site: Site) -> list[tuple[str, str]]:
    return [(event["event"], event.get("jobId", "")) for event in site.events()]


@clause("B-1")
async def test_b01_jobs_of_one_turn_are_added_in_order_and_each_has_its_answer(site: Site) -> None:
    lost = BullJobOptions(parent=Parent(QUEUE, "nowhere"))
    answers = await asyncio.gather(
        site.queue.submit("a"),
        site.queue.submit("b", "{}", lost),
        site.queue.submit("c", "{}", BullJobOptions(job_id="mine")),
        site.queue.submit("d", "{}", BullJobOptions(job_id="mine")),
        site.queue.submit("e", "{}", BullJobOptions(priority=2)),
    )
    assert answers == [
        *(Added("1"), Refusal.NO_PARENT, Added("mine"), Duplicate("mine")),
        Added("4"),
    ]
    assert site.ids("wait") == ["mine", "1"]
    assert [job.name for job, _ in await started(site, 3)] == ["a", "c", "e"]


@clause("B-1", "B-19")
async def test_b19_one_job_that_cannot_be_added_does_not_affect_the_others(site: Site) -> None:
    parent = await site.add()
    site.raw.call("SET", f"{KEY}{parent}:dependencies", "no set")
    child = BullJobOptions(parent=Parent(QUEUE, parent))
    answers = await asyncio.gather(
        *(site.queue.submit("x"), site.queue.submit("y", "{}", child), site.queue.submit("z")),
        return_exceptions=True,
    )
    assert (answers[0], answers[2]) == (Added("2"), Added("4"))
    assert isinstance(answers[1], ServerError)


@clause("B-1")
async def test_b01_a_later_call_does_not_overtake_a_submission(site: Site) -> None:
    _, counts = await asyncio.gather(site.queue.submit("a"), site.queue.counts())
    assert sum(counts.values()) == 1


def scripts_called(plain: Plain) -> int:
    stats = cast("dict[str, dict[str, int]]", plain.info("commandstats"))
    return stats.get("cmdstat_evalsha", {"calls": 0})["calls"]


@clause("B-27")
async def test_b27_jobs_of_many_queues_are_added_by_one_script(
    connection: Connection, plain: Plain
) -> None:
    queues = [QueueProducer(connection, f"q{number}") for number in range(40)]
    await queues[0].submit("first")  # the script is loaded
    before = scripts_called(plain)
    answers = await asyncio.gather(*(queue.submit("job") for queue in queues for _ in range(2)))
    assert scripts_called(plain) - before == 1
    assert answers == [Added("2"), Added("3"), *[Added("1"), Added("2")] * 39]
    for queue in queues[1:]:
        assert plain.lrange(f"bull:{queue.keys.queue}:wait", 0, -1) == ["2", "1"]
        assert plain.exists(f"bull:{queue.keys.queue}:marker")


@clause("B-21", "B-27")
async def test_b27_each_queue_of_a_script_keeps_its_events_within_their_length(
    connection: Connection, plain: Plain
) -> None:
    many, last = QueueProducer(connection, "many"), QueueProducer(connection, "last")
    plain.hset("bull:many:meta", "opts.maxLenEvents", "10")
    for _ in range(5):
        await asyncio.gather(*(many.submit("job") for _ in range(99)), last.submit("job"))
    assert plain.xlen("bull:many:events") < 2 * 99 + 100


@clause("B-19", "B-27")
async def test_b27_a_queue_that_cannot_be_written_fails_its_own_jobs_alone(
    connection: Connection, plain: Plain
) -> None:
    plain.call("SET", "bull:broken:id", "no number")
    sound, broken = QueueProducer(connection, "sound"), QueueProducer(connection, "broken")
    one, bad, two = await asyncio.gather(
        *(sound.submit("a"), broken.submit("b"), sound.submit("c")), return_exceptions=True
    )
    assert (one, two) == (Added("1"), Added("2"))
    assert isinstance(bad, ServerError)


@clause("B-19", "B-27")
async def test_b27_a_queue_that_the_servers_user_may_not_write_fails_its_own_jobs_alone(
    valkey: LocalValkey, plain: Plain
) -> None:
    """The server refuses the whole script before it runs."""
    rights = ("on", ">secret", "&*", "+@all", "~bull:sound:*")
    plain.call("ACL", "SETUSER", "one-queue", *rights)
    try:
        async with Connection.open(f"valkey://one-queue:secret@{valkey.address}/0") as connection:
            sound, other = QueueProducer(connection, "sound"), QueueProducer(connection, "other")
            one, bad, two = await asyncio.gather(
                *(sound.submit("a"), other.submit("b"), sound.submit("c")), return_exceptions=True
            )
    finally:
        plain.call("ACL", "DELUSER", "one-queue")
    assert (one, two) == (Added("1"), Added("2"))
    assert isinstance(bad, ServerError)


@clause("B-4")
async def test_b04_jobs_settled_in_one_batch_end_as_one_by_one(site: Site) -> None:
    for _ in range(3):
        await site.add()
    await site.add(remove_on_complete=True)
    (one, two, three, four) = await started(site, 4)
    ends = [
        settle_args.completed(*one, '{"ok":1}'),
        settle_args.failed(*two, FailedAttempt("no disk")),
        settle_args.completed(*three, "null"),
        settle_args.completed(*four, "null"),
    ]
    assert await site.consumer.settle(ends) == [SettledAttempt()] * 4
    assert names(site)[-6:] == [
        *(("completed", "1"), ("failed", "2"), ("retries-exhausted", "2")),
        *(("completed", "3"), ("completed", "4"), ("drained", "")),
    ]
    assert (sorted(site.ids("completed")), list(site.ids("failed"))) == (["1", "3"], ["2"])
    assert (site.ids("active"), site.raw.kind(f"{KEY}4")) == ([], "none")
    assert [site.raw.kind(f"{KEY}{number}:lock") for number in range(1, 5)] == ["none"] * 4
    assert (site.hash("1")["returnvalue"], site.hash("1")["atm"]) == ('{"ok":1}', "1")
    before = site.events()
    assert await site.consumer.settle(ends) == [SettledAttempt()] * 4, "repeated: the same answers"
    assert site.events() == before, "and nothing is done twice"


@clause("B-4", "B-19")
async def test_b19_one_job_that_cannot_end_does_not_block_the_others(site: Site) -> None:
    parent = await site.add()
    await site.complete()
    await site.add(parent=Parent(QUEUE, parent))
    await site.add()
    site.raw.call("DEL", f"{KEY}{parent}:dependencies")
    site.raw.call("SET", f"{KEY}{parent}:dependencies", "no set")
    (child, other) = await started(site, 2)
    ends = [settle_args.completed(*child, "1"), settle_args.completed(*other, "2")]
    refused, ended = await site.consumer.settle(ends)
    assert (isinstance(refused, ServerError), ended) == (True, SettledAttempt())
    assert site.hash("3")["returnvalue"] == "2"


@clause("B-2", "B-19")
async def test_b19_one_job_that_cannot_start_does_not_block_the_others(site: Site) -> None:
    for _ in range(3):
        await site.add()
    site.raw.call("DEL", f"{KEY}2")
    site.raw.call("SET", f"{KEY}2", "no hash")
    first, second, third, last = await take(site, 4)
    assert [answer.job.id for answer in (first, third) if isinstance(answer, Took)] == ["1", "3"]
    assert isinstance(second, BrokenJob)
    assert last == Empty(0)
    locks = [site.raw.call("GET", f"{KEY}{number}:lock") for number in (1, 3)]
    assert locks == ["t1", "t3"], "an answer has the place of its token"
