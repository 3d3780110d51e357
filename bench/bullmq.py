"""Server time of each verb of the BullMQ wire: our scripts beside those of npm BullMQ, same run.

The server's own count of EVALSHA is read before and after the same number of calls, so neither
side's client counts. There is no bar: what is compared is what a shared queue costs its server.
"""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.interop.bullmq_lab import LOCK_MS, OURS, THEIRS, Lab, laboratory

_ROUNDS: Final = 5
_CALLS: Final = 300
_SIDES: Final = ("ours", "ours, no extras", "npm 6")
_WORKER: Final[dict[str, Any]] = {"lockDuration": LOCK_MS}
_FAILURE: Final = {"reason": "because", "stack": "Error: because"}

_EVALSHA: Final = re.compile(r"cmdstat_evalsha:calls=(\d+),usec=(\d+)")


def run() -> bool:
    rows: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder, laboratory(Path(folder) / "valkey") as lab:
        for _ in range(_ROUNDS):
            for side in _SIDES:
                for verb, cost_us in _measured(lab, side).items():
                    rows.setdefault(verb, {}).setdefault(side, []).append(cost_us)
    print(f"{'server µs a call':<22}" + "".join(f"{side:>18}" for side in _SIDES))
    for verb, sides in rows.items():
        # The best round: the server's clock counts what other programs take from it too.
        print(f"{verb:<22}" + "".join(f"{min(sides[side]):>18.1f}" for side in _SIDES))
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
        plain.ask("CONFIG", "RESETSTAT")
        for at in range(_CALLS):
            verb(at)
        calls, spent_us = _EVALSHA.findall(str(plain.ask("INFO", "commandstats")))[0]
        return int(spent_us) / int(calls)

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
