"""The bot's tasks over HTTP: look at them, and start a pass over the unfinished ones (P-35).

A task belongs to the bot's tenant (P-32): other tenants see nothing.
"""

from dataclasses import asdict, replace
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from jobwire.api.problems import NOT_FOUND, ProblemKind
from jobwire.gateway.problems import Problem
from jobwire.gateway.router import CurrentRequest, needs, new_router
from jobwire.gateway.tenants import may_see
from jobwire.objects import Bucket
from jobwire.wires.predictions.contract import EXTENSIONS, is_prediction_id, rfc3339_ms
from jobwire.wires.predictions.flow import Flow
from jobwire.wires.predictions.http.errors import bucket_errors
from jobwire.wires.predictions.http.pictures import output_picture
from jobwire.wires.predictions.listing import MAX_PAGE, TaskView, find_task, list_tasks
from jobwire.wires.predictions.recent import MAX_RECENT, StatusFilter, recent_tasks
from jobwire.wires.predictions.reconcile import reconcile
from jobwire.wires.predictions.records import Records

NOT_CONFIGURED: Final = ProblemKind(
    "not_configured",
    409,
    "the bot is not configured: set predictions.telegram_token and predictions.webhook_secret",
)
_PASS_S: Final = 20.0
_PICTURES: Final[dict[str, JsonDict]] = {mime: {} for mime in EXTENSIONS}
_EXAMPLE: Final[JsonDict] = {
    "id": "ufawqhfynnddngldkgtslldrkq",
    "task_id": "mfrggzdfmztwq2lkmfrggzdfmztwq2lk",
    "status": "succeeded",
    "state": "delivered",
    "chat_id": 77,
    "tenant": "default",
    "model": "owner/name",
    "input_key": "images/input/2026/01/21/3f2a….jpg",
    "output_key": "images/output/2026/01/21/ufawq….png",
    "error": None,
    "created_at": "2026-01-21T12:34:56Z",
    "updated_at": "2026-01-21T12:35:10Z",
    "prompt": "as a paper cut",
    "message": None,
    "pictures": 1,
    "history": [{"state": "accepted", "at": "2026-01-21T12:34:56.120Z"}],
}


class PredictionStep(BaseModel):
    """A state of the bot's own work, and since when."""

    state: str
    at: str


class Prediction(BaseModel):
    """One task of the bot."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})
    id: str = Field(description="the prediction's id; the task's own before there is one")
    task_id: str | None
    status: str = Field(description="queued, processing, succeeded or failed")
    state: str | None = Field(description="the step of the bot's own work, if it is known")
    chat_id: int
    tenant: str
    model: str | None
    input_key: str | None
    output_key: str | None
    error: str | None = Field(description="the error code, or the last temporary problem")
    created_at: str | None
    updated_at: str | None
    prompt: str | None = None
    message: str | None = Field(default=None, description="the provider's message about a failure")
    pictures: int = Field(default=0, description="how many output pictures are stored")
    history: list[PredictionStep] = Field(
        default_factory=list["PredictionStep"],
        description="when the task entered each state, for tasks of the bot",
    )


class Predictions(BaseModel):
    """Tasks in the order of their ids; `next` is the `after` of the next page."""

    predictions: list[Prediction]
    next: str | None


class RecentPredictions(BaseModel):
    """Tasks, newest first; `looked_at` of `total` were read, `open` are not finished."""

    predictions: list[Prediction]
    looked_at: int
    total: int
    open: int


class ReconcilePass(BaseModel):
    """What one pass did."""

    open: int
    delivered: int
    orphans: int
    taken_over: int
    failed: int
    complete: bool


def task_router(bucket: Bucket, records: Records, owner: str, flow: Flow | None) -> APIRouter:
    """The routes over one bucket, whose tasks belong to the tenant `owner`."""
    routes = new_router("predictions")

    def shown(view: TaskView) -> Prediction:
        members = asdict(replace(view, tenant=view.tenant or owner))
        steps = [{"state": each.state, "at": rfc3339_ms(each.at_ms)} for each in view.history]
        members |= {"pictures": len(view.outputs), "history": steps}
        return Prediction.model_validate(members)

    @routes.get("/v1/predictions", openapi_extra=needs("read"))
    async def list_the_predictions(
        request: CurrentRequest,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 20,
        after: Annotated[str, Query(max_length=128, pattern=r"^[A-Za-z0-9._-]*$")] = "",
    ) -> Predictions:
        """The bot's tasks whose prediction is known, in the order of their ids."""
        if not may_see(request, owner):
            return Predictions(predictions=[], next=None)
        with bucket_errors():
            page = await list_tasks(bucket, records, limit=limit, after=after)
        return Predictions(predictions=[shown(each) for each in page.tasks], next=page.next)

    @routes.get("/v1/predictions/recent", openapi_extra=needs("read"))
    async def list_recent_predictions(
        request: CurrentRequest,
        status: Annotated[StatusFilter, Query(description="only tasks of this kind")] = "all",
        limit: Annotated[int, Query(ge=1, le=MAX_RECENT)] = 20,
    ) -> RecentPredictions:
        """The newest tasks, also those whose prediction is not known yet.

        All names in the bucket are listed for it, and at most 200 tasks are read.
        """
        if not may_see(request, owner):
            return RecentPredictions(predictions=[], looked_at=0, total=0, open=0)
        with bucket_errors():
            found = await recent_tasks(bucket, records, limit=limit, status=status)
        return RecentPredictions(
            predictions=[shown(each) for each in found.tasks],
            looked_at=found.read,
            total=found.total,
            open=found.open,
        )

    async def visible(prediction_id: str, request: CurrentRequest) -> TaskView:
        view = None
        if may_see(request, owner) and is_prediction_id(prediction_id):
            with bucket_errors():
                view = await find_task(records, prediction_id)
        if view is None:
            raise Problem(NOT_FOUND, "there is no such prediction")
        return view

    @routes.get("/v1/predictions/{prediction_id}", openapi_extra=needs("read", NOT_FOUND))
    async def get_a_prediction(prediction_id: str, request: CurrentRequest) -> Prediction:
        """One task, by its prediction's id or by its task id."""
        return shown(await visible(prediction_id, request))

    @routes.get(
        "/v1/predictions/{prediction_id}/pictures/{number}",
        response_class=Response,
        responses={200: {"content": _PICTURES, "description": "the picture"}},
        openapi_extra=needs("read", NOT_FOUND),
    )
    async def get_an_output_picture(
        prediction_id: str, number: Annotated[int, Path(ge=1, le=100)], request: CurrentRequest
    ) -> Response:
        """An output picture; the first has the number 1. Input photos are not served."""
        view = await visible(prediction_id, request)
        with bucket_errors():
            return await output_picture(bucket, view, number, request)

    @routes.post("/v1/predictions/reconcile", openapi_extra=needs("admin", NOT_CONFIGURED))
    async def reconcile_now(request: CurrentRequest) -> ReconcilePass:
        """Reconcile the unfinished tasks once, as the timer does."""
        if flow is None or not may_see(request, owner):
            raise Problem(NOT_CONFIGURED if may_see(request, owner) else NOT_FOUND)
        with bucket_errors():
            report = await reconcile(flow, limit_s=_PASS_S)
        return ReconcilePass(**asdict(report))

    return routes
