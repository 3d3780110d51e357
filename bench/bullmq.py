"""Server time of each verb of the BullMQ wire: our scripts beside those of npm BullMQ, same run.

The server's slow log has the time of each call, so neither side's client counts; the median leaves
out calls that other programs of the machine interrupted. There is no limit: the figures show what a
shared queue costs its server.
"""

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from tests.interop.bullmq_lab import LOCK_MS, OURS, THEIRS, Lab, laboratory

_ROUNDS: Final = 3
_CALLS: Final = 300
_SIDES: Final = ("ours", "ours, no extras", "npm 6")
_WORKER: Final[dict[str, Any]] = {"lockDuration": LOCK_MS}
_FAILURE: Final = {"reason": "because", "stack": "Error: because"}


def run() -> bool:
    rows: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder, laboratory(Path(folder) / "valkey") as lab:
        lab.ours.call("CONFIG", "SET", "slowlog-log-slower-than", 0)
        lab.ours.call("CONFIG", "SET", "slowlog-max-len", 10 * _CALLS)
        for _ in range(_ROUNDS):
            for side in _SIDES:
                for verb, cost_us in _measured(lab, side).items():
                    rows.setdefault(verb, {}).setdefault(side, []).append(cost_us)
    print(f"{'server µs a call':<22}" + "".join(f"{side:>18}" for side in _SIDES))
    for verb, sides in rows.items():
        medians = [statistics.median(sides[side]) for side in _SIDES]
        print(f"{verb:<22}" + "".join(f"{value:>18.1f}" for value in medians))
    return True


def _measured(lab: Lab, side: str) -> dict[str, float]:
    """Each verb in turn, on a queue that the verbs before it have filled."""
    lab.reset(extras=side == "ours")
    db = THEIRS if side == "npm 6" else OURS
    plain = lab.theirs if db == THEIRS else lab.ours

    def do(op: str, **more: Any) -> Any:
        call = {"op": op, "queue": "q", "now": lab.now, "version": 6, "worker": _WORKER, **more}
        return lab.official(call, db) if db == THEIRS else lab.do_ours(call)

    def cost_us(verb: Callable[[int], Any]) -> float:
        plain.call("SLOWLOG", "RESET")
        for at in range(_CALLS):
            verb(at)
        entries = cast("list[list[Any]]", plain.call("SLOWLOG", "GET", -1))
        return statistics.median(entry[2] for entry in entries if _is_script(entry))

    data = {"videoId": "v", "scenes": [{"n": at} for at in range(10)]}
    opts = {"attempts": 2, "backoff": 1000}
    held: list[str] = []

    def take(at: int) -> None:
        held.append(do("take", token=f"t{at}")["job"])

    def settle(at: int) -> None:
        do("complete", id=held[at], token=f"t{at}", value={"ok": True}, fetch=False)

    costs: dict[str, float] = {}
    costs["add"] = cost_us(lambda _: do("add", name="job", data=data, opts=opts))
    costs["take"] = cost_us(take)
    costs["progress"] = cost_us(lambda at: do("progress", id=held[at], value=50))
    tokens = [f"t{at}" for at in range(100)]
    costs["renew, 100 jobs"] = cost_us(lambda _: do("renew", ids=held[:100], tokens=tokens))
    costs["settle"] = cost_us(settle)
    held.clear()
    for _ in range(_CALLS + 1):
        do("add", name="job", data=data, opts=opts)
    take(0)

    def settle_and_take(at: int) -> None:
        found = do("complete", id=held[at], token="t0", value={"ok": True}, fetch=True)
        held.append(found["job"])

    costs["settle and take"] = cost_us(settle_and_take)
    held.clear()
    for at in range(_CALLS):
        do("add", name="job", data=data, opts=opts)
        held.append(do("take", token=f"t{at}")["job"])
    costs["fail with backoff"] = cost_us(
        lambda at: do("fail", id=held[at], token=f"t{at}", fetch=False, **_FAILURE)
    )
    costs["add prioritised"] = cost_us(
        lambda _: do("add", name="job", data={}, opts={"priority": 3})
    )
    costs["add delayed"] = cost_us(lambda _: do("add", name="job", data={}, opts={"delay": 60_000}))
    return costs


def _is_script(entry: list[Any]) -> bool:
    return str(entry[3][0]).upper() == "EVALSHA"
