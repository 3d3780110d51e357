"""A queue in memory that never has a job: what a further queue costs a worker by itself."""

from jobwire.job.messages import Policy
from jobwire.testing.memory import SingleJobEngine


class IdleEngine(SingleJobEngine):
    def __init__(self, name: str) -> None:
        super().__init__("none", None, Policy())
        self.name = name
        self.queues = (name,)
        self._available.clear()
