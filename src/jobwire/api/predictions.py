"""The operations of predictions: the photo bot's tasks, and the webhooks of its partners."""

from dataclasses import replace
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from jobwire.api.operation import Operation, Proof
from jobwire.api.problems import INVALID, NOT_FOUND, UNAVAILABLE, ProblemKind

PREDICTIONS: Final = "/v1/predictions"
MAX_PAGE: Final = 100
MAX_RECENT: Final = 50
MAX_PICTURES: Final = 100
MAX_SIGNED_BYTES: Final = 256 * 1024
"""Read before the signature can be checked; Replicate sends URLs, no pictures."""
MAX_WEBHOOK_BYTES: Final = 32 * 1024 * 1024
"""cog may send its pictures inside the body."""
MAX_UPDATE_BYTES: Final = 1024 * 1024
SECRET_HEADER: Final = "x-telegram-bot-api-secret-token"  # noqa: S105 - the name of a header
# `$` alone would also match before a line break at the end.
_ID_PART: Final = r"^[A-Za-z0-9._-]*$(?!\n)"

StatusFilter = Literal["all", "open", "succeeded", "failed"]

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


class PredictionFilter(Struct, frozen=True):
    """The query of the list of tasks."""

    limit: Annotated[
        int, Meta(ge=1, le=MAX_PAGE, description="how many; default 20", examples=[20])
    ] = 20
    after: Annotated[
        str,
        Meta(
            max_length=128,
            pattern=_ID_PART,
            description="`next` of the previous page",
            extra={"fault": "is not the id of a prediction"},
        ),
    ] = ""


class RecentFilter(Struct, frozen=True):
    """The query of the newest tasks."""

    status: Annotated[
        StatusFilter, Meta(description="only tasks of this kind", examples=["open"])
    ] = "all"
    limit: Annotated[
        int, Meta(ge=1, le=MAX_RECENT, description="how many; default 20", examples=[20])
    ] = 20


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


class PredictionStep(Struct, frozen=True):
    """A state of the bot's own work, and since when."""

    state: str
    at: str


class PredictionInfo(Struct, frozen=True, kw_only=True):
    """One task of the bot."""

    id: Annotated[str, Meta(description="the prediction's id; the task's own before there is one")]
    task_id: str | None
    status: Annotated[str, Meta(description="queued, processing, succeeded or failed")]
    state: Annotated[str | None, Meta(description="the step of the bot's own work, if it is known")]
    chat_id: int
    tenant: str
    model: str | None
    input_key: str | None
    output_key: str | None
    error: Annotated[str | None, Meta(description="the error code, or the last temporary problem")]
    created_at: str | None
    updated_at: str | None
    prompt: str | None = None
    message: Annotated[str | None, Meta(description="the provider's message about a failure")] = (
        None
    )
    pictures: Annotated[int, Meta(description="how many output pictures are stored")] = 0
    history: Annotated[
        list[PredictionStep],
        Meta(description="when the task entered each state, for tasks of the bot"),
    ] = []


class PredictionPage(Struct, frozen=True):
    """Tasks in the order of their ids; `next` is the `after` of the next page."""

    predictions: list[PredictionInfo]
    next: str | None


class RecentPredictions(Struct, frozen=True):
    """Tasks, newest first; `looked_at` of `total` were read, `open` are not finished."""

    predictions: list[PredictionInfo]
    looked_at: int
    total: int
    open: int


class ReconcilePass(Struct, frozen=True):
    """What one pass did."""

    open: int
    delivered: int
    orphans: int
    taken_over: int
    failed: int
    complete: bool


# ── problems ─────────────────────────────────────────────────────────────────────────────────────

NOT_CONFIGURED: Final = ProblemKind(
    "not_configured",
    409,
    "the bot is not configured: set predictions.telegram_token and predictions.webhook_secret",
)
BAD_SIGNATURE: Final = ProblemKind(
    "bad_signature", 401, "this webhook does not carry its sender's signature or secret"
)

# ── operations ───────────────────────────────────────────────────────────────────────────────────

_PREDICTION: Final = {
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
LIST: Final = Operation(
    "GET",
    PREDICTIONS,
    "read",
    "The bot's tasks whose prediction is known, in the order of their ids",
    tag="predictions",
    query=PredictionFilter,
    answer=PredictionPage,
    example={"predictions": [_PREDICTION], "next": None},
    problems=(UNAVAILABLE,),
)
RECENT: Final = Operation(
    "GET",
    PREDICTIONS + "/recent",
    "read",
    "The newest tasks, also those whose prediction is not known yet",
    tag="predictions",
    description="All names in the bucket are listed for it, from 3,000 on a tenth of the time at "
    "most; at most 200 tasks are read.",
    query=RecentFilter,
    answer=RecentPredictions,
    example={"predictions": [_PREDICTION], "looked_at": 1, "total": 1, "open": 0},
    problems=(UNAVAILABLE,),
    hides=True,
)
GET: Final = Operation(
    "GET",
    PREDICTIONS + "/{prediction_id}",
    "read",
    "One task, by its prediction's id or by its task id",
    tag="predictions",
    answer=PredictionInfo,
    example=_PREDICTION,
    problems=(NOT_FOUND, UNAVAILABLE),
)
PICTURE: Final = Operation[None](
    "GET",
    PREDICTIONS + "/{prediction_id}/pictures/{number}",
    "read",
    "An output picture; the first has the number 1",
    tag="predictions",
    description=f"`number` is at most {MAX_PICTURES}. Input photos are not served.",
    media_type="image/*",
    also={304: "the client has this picture already (`If-None-Match`)"},
    problems=(NOT_FOUND, INVALID, UNAVAILABLE),
)
RECONCILE: Final = Operation(
    "POST",
    PREDICTIONS + "/reconcile",
    "admin",
    "Reconcile the unfinished tasks once, as the timer does",
    tag="predictions",
    answer=ReconcilePass,
    example={
        "open": 3,
        "delivered": 1,
        "orphans": 0,
        "taken_over": 1,
        "failed": 0,
        "complete": True,
    },
    problems=(NOT_CONFIGURED, NOT_FOUND, UNAVAILABLE),
    hides=True,
)
REPLICATE_HOOK: Final = Operation[None](
    "POST",
    "/hooks/replicate/{tid}",
    Proof(
        "replicateWebhook",
        {"type": "apiKey", "in": "header", "name": "webhook-signature"},
        (BAD_SIGNATURE, NOT_FOUND),
    ),
    "A webhook of replicate: the outcome of a prediction",
    tag="predictions",
    takes=dict,
    body_example={"id": "abc123", "status": "succeeded", "output": ["https://…"]},
    max_body=MAX_SIGNED_BYTES,
    media_type="text/plain",
    also={
        403: "the prediction belongs to another task",
        404: "no such task yet: send it again",
        503: "not recorded: send it again",
    },
)
REPLICATE_HOOK_WITHOUT_TASK: Final = replace(
    REPLICATE_HOOK,
    path="/hooks/replicate",
    summary="The same for a task that its prediction names, or `?tid=`",
)
COG_HOOK: Final = replace(
    REPLICATE_HOOK,
    path="/hooks/cog/{tid}",
    access=Proof(
        "cogWebhook",
        {"type": "apiKey", "in": "query", "name": "token"},
        (BAD_SIGNATURE, NOT_FOUND),
    ),
    summary="A webhook of cog: the outcome of a prediction",
    max_body=MAX_WEBHOOK_BYTES,
)
TELEGRAM_HOOK: Final = Operation[None](
    "POST",
    "/hooks/telegram",
    Proof(
        "telegramSecret",
        {"type": "apiKey", "in": "header", "name": SECRET_HEADER},
        (BAD_SIGNATURE,),
    ),
    "An update of Telegram: a photo, a command, anything else",
    tag="predictions",
    takes=dict,
    body_example={"update_id": 1, "message": {}},
    max_body=MAX_UPDATE_BYTES,
    media_type="text/plain",
    also={503: "not recorded: send it again"},
)
