"""What the routes are built from: one server, or all shards. Both have the same methods."""

from typing import TypeAlias

from jobwire.job.errors import BackendUnavailable
from jobwire.systems.jobs.follow import Follower
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.queue_admin import JobQueueAdmin
from jobwire.systems.jobs.server_reader import ServerReader
from jobwire.systems.jobs.sharded_follow import ShardedFollower
from jobwire.systems.jobs.sharded_queue import ShardedQueue
from jobwire.systems.jobs.sharded_reader import ShardedAdmin, ShardedReader

AnyQueue: TypeAlias = StreamsQueue | ShardedQueue
AnyReader: TypeAlias = ServerReader | ShardedReader
AnyAdmin: TypeAlias = JobQueueAdmin | ShardedAdmin
AnyFollower: TypeAlias = Follower | ShardedFollower


def check_complete(*silent: int) -> None:
    """For sums that must not be too small (G-28), and changes of all jobs: BackendUnavailable if a
    shard did not answer."""
    if silent:
        raise BackendUnavailable(silent_text(silent))


def silent_text(silent: tuple[int, ...]) -> str:
    """Which shards did not answer."""
    names = ", ".join(map(str, sorted(set(silent))))
    return f"incomplete: no answer from shard {names}"
