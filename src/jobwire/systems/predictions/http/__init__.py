"""Predictions in a gateway: their routes, webhooks and metrics.

tasks.py     the bot's tasks: one, a page, the newest; a pass over the unfinished ones
pictures.py  their output pictures
hooks.py     the webhooks of the provider and of Telegram; each carries its own proof (P-30)
metrics.py   what was counted, as Prometheus metrics
view.py      predictions in /v1/overview, /v1/failures, /v1/search, /v1/workers, /v1/stats
"""

from jobwire.gateway.feature import Feature
from jobwire.gateway.tenants import DEFAULT_TENANT
from jobwire.job.clock import SystemClock
from jobwire.objects import Bucket
from jobwire.systems.predictions.flow import Flow
from jobwire.systems.predictions.http.hooks import hook_routes
from jobwire.systems.predictions.http.metrics import PredictionsCollector
from jobwire.systems.predictions.http.operator_view import PredictionsView
from jobwire.systems.predictions.http.tasks import TaskRoutes
from jobwire.systems.predictions.records import Records
from jobwire.systems.predictions.task_names import TaskNamesReader
from jobwire.systems.predictions.telegram.bot import TelegramBot


def feature(
    bucket: Bucket,
    tenant: str,
    flow: Flow | None = None,
    bot: TelegramBot | None = None,
    telegram_secret: str = "",
) -> Feature:
    """The feature; without a flow it only shows the tasks that are in the bucket."""
    records = flow.deps.records if flow else Records(bucket, SystemClock())
    names, owner = TaskNamesReader(bucket), tenant or DEFAULT_TENANT
    hooks = hook_routes(flow, bot, telegram_secret) if flow else ()
    return Feature(
        name="predictions",
        routes=[*TaskRoutes(bucket, records, names, owner, flow).routes(), *hooks],
        collectors=[PredictionsCollector(flow.deps.counts)] if flow else (),
        view=PredictionsView(bucket, records, names, owner),
    )
