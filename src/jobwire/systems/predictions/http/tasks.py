"""The bot's tasks over HTTP: look at them, and start a pass over the unfinished ones (P-35).

A task belongs to the bot's tenant (P-32): other tenants see nothing.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from jobwire.api import predictions as api
from jobwire.api.problems import NOT_FOUND
from jobwire.gateway.problems import Problem, invalid
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import Route, serve
from jobwire.gateway.tenants import may_see
from jobwire.objects import Bucket
from jobwire.systems.predictions.contract import is_prediction_id, rfc3339_ms
from jobwire.systems.predictions.flow import Flow
from jobwire.systems.predictions.http.errors import bucket_errors
from jobwire.systems.predictions.http.pictures import output_picture
from jobwire.systems.predictions.listing import TaskView, find_task, list_tasks
from jobwire.systems.predictions.newest_tasks import recent_tasks
from jobwire.systems.predictions.reconcile import reconcile
from jobwire.systems.predictions.records import Records
from jobwire.systems.predictions.task_names import TaskNamesReader

_PASS_S: Final = 20.0
_NUMBERS: Final = {str(number): number for number in range(1, api.MAX_PICTURES + 1)}


class TaskRoutes:
    """The endpoints over one bucket, whose tasks belong to the tenant `owner`."""

    def __init__(
        self,
        bucket: Bucket,
        records: Records,
        names: TaskNamesReader,
        owner: str,
        flow: Flow | None,
    ) -> None:
        self._bucket = bucket
        self._names = names
        self._records = records
        self._owner = owner
        self._flow = flow

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            serve(api.LIST, self.list),
            serve(api.RECENT, self.recent),
            serve(api.GET, self.get),
            serve(api.PICTURE, self.picture),
            serve(api.RECONCILE, self.reconcile),
        ]

    async def list(self, request: HttpRequest, query: api.PredictionFilter) -> api.PredictionPage:
        """A page of the tasks whose prediction is known."""
        if not may_see(request, self._owner):
            return api.PredictionPage([], None)
        with bucket_errors():
            page = await list_tasks(
                self._bucket, self._records, limit=query.limit, after=query.after
            )
        return api.PredictionPage([self._shown(each) for each in page.tasks], page.next)

    async def recent(self, request: HttpRequest, query: api.RecentFilter) -> api.RecentPredictions:
        """The newest tasks."""
        if not may_see(request, self._owner):
            return api.RecentPredictions([], looked_at=0, total=0, open=0)
        with bucket_errors():
            names = await self._names.read()
            found = await recent_tasks(names, self._records, limit=query.limit, status=query.status)
        return api.RecentPredictions(
            [self._shown(each) for each in found.tasks],
            looked_at=found.read,
            total=found.total,
            open=found.open,
        )

    async def get(self, request: HttpRequest, prediction_id: str) -> api.PredictionInfo:
        """One task."""
        return self._shown(await self._find(request, prediction_id))

    async def picture(self, request: HttpRequest, prediction_id: str, number: str) -> Reply | None:
        """One output picture."""
        if number not in _NUMBERS:
            fault = f"must be a number from 1 to {api.MAX_PICTURES}"
            raise invalid("path", "/number", fault)
        view = await self._find(request, prediction_id)
        with bucket_errors():
            return await output_picture(self._bucket, view, _NUMBERS[number], request)

    async def reconcile(self, request: HttpRequest) -> api.ReconcilePass:
        """One pass over the unfinished tasks."""
        if not may_see(request, self._owner):
            raise Problem(NOT_FOUND)
        if self._flow is None:
            raise Problem(api.NOT_CONFIGURED)
        with bucket_errors():
            report = await reconcile(self._flow, limit_s=_PASS_S)
        return api.ReconcilePass(**asdict(report))

    async def _find(self, request: HttpRequest, prediction_id: str) -> TaskView:
        view = None
        if may_see(request, self._owner) and is_prediction_id(prediction_id):
            with bucket_errors():
                view = await find_task(self._records, prediction_id)
        if view is None:
            raise Problem(NOT_FOUND, "there is no such prediction")
        return view

    def _shown(self, view: TaskView) -> api.PredictionInfo:
        return api.PredictionInfo(
            id=view.id,
            task_id=view.task_id,
            status=view.status,
            state=view.state,
            chat_id=view.chat_id,
            tenant=view.tenant or self._owner,
            model=view.model,
            input_key=view.input_key,
            output_key=view.output_key,
            error=view.error,
            created_at=view.created_at,
            updated_at=view.updated_at,
            prompt=view.prompt,
            message=view.message,
            pictures=len(view.outputs),
            history=[
                api.PredictionStep(each.state, rfc3339_ms(each.at_ms)) for each in view.history
            ],
        )
