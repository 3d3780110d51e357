"""An app with an entry that is due every second: cron's own minutes would take too long."""

from __future__ import annotations

from jobwire import App, Context
from jobwire.worker.scheduler import CronEntry

app = App()


class EverySecond:
    def next_ms(self, after_ms: int) -> int:
        return after_ms - after_ms % 1000 + 1000

    def last_ms(self, until_ms: int) -> int:
        return until_ms - until_ms % 1000


@app.handler("tick")
async def tick(ctx: Context) -> str:
    return ctx.job.id


app._crons["tick"] = CronEntry("tick", EverySecond(), "UTC every second", "tick", "{}")  # pyright: ignore[reportPrivateUsage] - there is no public way to be due so often
