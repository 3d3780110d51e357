"""The cron entries of the fleet with their last and next runs, for lists (J-52)."""

from typing import Final, NamedTuple, cast

from jobwire.cron import BadCron, parse
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.codec import number, readable
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.replies import collect, server_ms
from jobwire.valkey import Connection

_MAX_ENTRIES: Final = 1_000


class ListedCron(NamedTuple):
    """One schedule of one entry; there are two while workers of an older version exist."""

    name: str
    schedule: str
    tz: str
    last_ms: int | None
    """The last due time that has run; None: it has not run since it was enrolled first."""
    next_ms: int | None
    """None if this version cannot read the schedule."""
    live: bool
    """Whether a worker has enrolled it lately."""
    paused: bool


async def cron_list(connection: Connection, keys: StreamsKeys) -> list[ListedCron]:
    """The entries by name, at most 1,000 names: those enrolled last."""
    newest = connection.call("ZRANGE", keys.crons, 0, _MAX_ENTRIES - 1, "REV")
    time, reply, paused = await collect(
        [connection.call("TIME"), newest, connection.call("SMEMBERS", keys.paused_crons)]
    )
    now_ms = server_ms(time)
    names, held = sorted(cast("list[str]", reply)), frozenset(cast("list[str]", paused))
    calls = [connection.call("HGETALL", keys.cron(name)) for name in names]
    replies = await collect(calls)
    return [
        _listed(readable(name), readable(entry), state, now_ms, name in held)
        for name, schedules in zip(names, replies, strict=True)
        for entry, state in cast("dict[str, str]", schedules).items()
    ]


def _listed(name: str, entry: str, state: str, now_ms: int, paused: bool) -> ListedCron:
    tz, _, schedule = entry.partition(" ")
    due, _, enrolled = state.partition(" ")
    due_ms, enrolled_ms = number(due) or 0, number(enrolled) or 0
    try:
        times = parse(schedule, tz)
        next_ms = times.next_ms(now_ms)
        # A new schedule begins with the time of its first enrollment, which is not a due time.
        last_ms = due_ms if due_ms and times.last_ms(due_ms) == due_ms else None
    except BadCron:
        next_ms = last_ms = None
    live = now_ms - enrolled_ms < contract.CRON_GONE_MS
    return ListedCron(name, schedule, tz, last_ms, next_ms, live, paused)
