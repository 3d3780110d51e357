"""The intent: the only object that decides about a task, with its merge rules (P-15). Pure.

States only rise: accepted → stored → submitting → started → finished → settled → delivered.

accepted    the message is ours; limits, placeholder and photo come next
stored      the photo is in the bucket, the provider is to be asked (again)
submitting  the provider is being asked, or was asked and its answer was lost
started     the prediction id is known
finished    the provider's outcome, or a failure of our own, is known
settled     outputs are stored and the outcome is published in the task object
delivered   the user has the result, or never can; only the open marker may be left

Two calls cannot be repeated: creating a prediction and sending a message. Each is preceded by a
write of the intent that records it; all other work is repeatable and is simply done again.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from jobwire.job import retry
from jobwire.systems.predictions.contract import (
    FAILED,
    PROCESSING,
    QUEUED,
    TaskErrorCode,
    TaskStatus,
)

State = Literal["accepted", "stored", "submitting", "started", "finished", "settled", "delivered"]
RANK: Final[dict[State, int]] = {
    "accepted": 0,
    "stored": 1,
    "submitting": 2,
    "started": 3,
    "finished": 4,
    "settled": 5,
    "delivered": 6,
}
# A busy provider takes a task from `submitting` back to `stored`, any number of times.
_LONGEST_HISTORY: Final = 20


class Photo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the chat side knows of a photo that a user sent."""

    chat_id: int
    user_id: int
    message_id: int | None
    file_id: str | None
    date_s: int
    size: int | None = None
    """Size in bytes as the chat claims, where it does."""
    caption: str = ""
    language: str = ""
    album: str = ""
    """What the messages of one album have in common."""


class Lease(Struct, frozen=True):
    """Who works on the task, and until when no other process begins. Only an optimisation;
    correctness does not depend on it."""

    by: str
    until_ms: int


class Slot(Struct, frozen=True, omit_defaults=True):
    """One message of ours in the chat. `sending` without an id: the send may have happened."""

    state: Literal["sending", "sent", "edited"]
    message_id: int | None = None
    unanswered: int = 0
    """Texts sent for it without an answer: each may be in the chat. A refused one is not."""


class StoredInput(Struct, frozen=True):
    """The photo in the bucket."""

    key: str
    mime: str
    size: int


class Output(Struct, frozen=True, omit_defaults=True):
    """One picture of the outcome: where the provider keeps it, and where we do once stored. One
    that is no picture for a chat, or too large, has no key: its address is delivered."""

    url: str | None = None
    key: str | None = None
    mime: str | None = None
    size: int | None = None
    text: str | None = None
    """The text that the model wrote; then there is nothing else."""


class Outcome(Struct, frozen=True, omit_defaults=True):
    """How a task ended."""

    status: Literal["succeeded", "failed"]
    outputs: tuple[Output, ...] = ()
    code: str | None = None
    message: str | None = None


class Transition(Struct, frozen=True):
    """When a task came into a state."""

    state: State
    at_ms: int


class Intent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task. `rev` and `writer` make the bytes of every version unique."""

    tid: str
    rev: int = 0
    writer: str = ""
    state: State = "accepted"
    created_ms: int
    updated_ms: int
    tenant: str = ""
    photo: Photo
    lease: Lease | None = None
    not_before_ms: int = 0
    """No further step before this time: the provider or the chat asked to wait."""
    trouble: str | None = None
    """Error code of the last temporary problem; the task fails with it when it grows too old.
    Of a delivered task: why its user has no picture, although there is one."""
    admitted: bool = False
    quiet: bool = False
    """Its end is not shown to the user: another photo of the same album has shown it."""
    slots: tuple[Slot, ...] = ()
    """Our messages in the chat; the first is the placeholder. One picture each."""
    input: StoredInput | None = None
    attempts: int = 0
    submit_ms: int = 0
    prediction_id: str | None = None
    running: bool = False
    """The provider has begun to work on it."""
    outcome: Outcome | None = None
    tries: int = 0
    """Temporary problems in a row, for the backoff."""
    history: tuple[Transition, ...] = ()
    """The latest changes of the state, for people; nothing is decided by it."""

    @property
    def rank(self) -> int:
        return RANK[self.state]

    @property
    def status(self) -> TaskStatus:
        """The public state."""
        if self.rank >= RANK["settled"] and self.outcome:
            return self.outcome.status
        return PROCESSING if self.running else QUEUED

    def held_by_other(self, owner: str, now_ms: int) -> bool:
        """Whether another driver has the lease."""
        return self.lease is not None and self.lease.by != owner and self.lease.until_ms > now_ms


def with_transition(intent: Intent, before: State, now_ms: int) -> Intent:
    """Note the time of a change of the state."""
    if intent.state == before:
        return intent
    history = (*intent.history, Transition(intent.state, now_ms))[-_LONGEST_HISTORY:]
    return replace(intent, history=history)


class News(Struct, frozen=True, kw_only=True):
    """What a provider reports about one prediction, in our words.

    `outcome` is None while it is not finished; an unknown status counts as not finished.
    """

    prediction_id: str
    running: bool = False
    outcome: Outcome | None = None
    input_text: str = ""
    """Everything that the provider echoes of the input; a matching URL holds the task's UUID."""


class Merged(Struct, frozen=True):
    """The news change the intent to this."""

    intent: Intent


class Unchanged(Struct, frozen=True):
    """The news are older than, or equal to, what is recorded."""


class OtherPrediction(Struct, frozen=True):
    """The news are about another prediction than the recorded one."""


class Disagreement(Struct, frozen=True):
    """Two ends of one prediction contradict each other: ask the provider."""


def merge(intent: Intent, news: News) -> Merged | Unchanged | OtherPrediction | Disagreement:
    """Merge news of a provider into an intent (P-15)."""
    if intent.prediction_id not in (None, news.prediction_id):
        return OtherPrediction()
    if intent.rank >= RANK["settled"]:
        return Unchanged()  # the outcome is published and never changes (P-5)
    if intent.outcome is not None:
        # Details may differ between two reports of one end.
        if news.outcome is None or intent.outcome.status == news.outcome.status:
            return Unchanged()
        return Disagreement()
    if news.outcome is not None:
        return Merged(finished(replace(intent, prediction_id=news.prediction_id), news.outcome))
    running = intent.running or news.running
    if intent.rank >= RANK["started"] and running == intent.running:
        return Unchanged()
    return Merged(
        replace(
            intent,
            state="started",
            prediction_id=news.prediction_id,
            running=running,
            not_before_ms=0,
            trouble=None,
            tries=0,
        )
    )


def overruled(intent: Intent, truth: News) -> Intent:
    """The provider's word after a disagreement; it counts until the outcome is published."""
    if truth.outcome is None or truth.prediction_id != intent.prediction_id:
        return intent
    return intent if intent.state != "finished" else finished(intent, truth.outcome)


def finished(intent: Intent, outcome: Outcome) -> Intent:
    """End the work on an intent that is not published yet."""
    return replace(
        intent, state="finished", outcome=outcome, not_before_ms=0, trouble=None, tries=0
    )


def failed(intent: Intent, code: TaskErrorCode, message: str | None = None) -> Intent:
    """End the work with a failure of our own; an outcome that is known already stays."""
    if intent.outcome is not None:
        return intent
    return finished(intent, Outcome(FAILED, code=str(code), message=message))


Step = Literal["wait", "expire", "accept", "create", "find", "poll", "settle", "deliver", "close"]


class FlowTimes(Struct, frozen=True, kw_only=True):
    """Times of the flow, in seconds."""

    deadline_s: int = 600
    """How long the provider may take; passed on to it."""
    margin_s: int = 600
    """How long after the deadline a task without an outcome is given up."""
    lease_s: int = 60
    find_after_s: int = 10
    """A create without an answer is searched in the provider's list after this time."""
    grace_s: int = 120
    """A second create comes no sooner: longer than the list's delay and one lease."""
    max_creates: int = 2
    poll_after_s: int = 30
    """A prediction without a webhook is asked for after this time."""
    output_life_s: int = 3600
    """How long the provider keeps an output."""
    delivery_life_s: int = 24 * 3600
    """How long a delivery is tried."""
    backoff_s: int = 15
    longest_backoff_s: int = 600


def next_step(intent: Intent, now_ms: int, policy: FlowTimes) -> Step:
    """What to do next for an intent, by its state and the time alone."""
    if intent.state == "delivered":
        return "close"
    if intent.outcome is None and now_ms >= expires_ms(intent, policy):
        # A task that was submitted may have an outcome: its provider is asked at its own time.
        waits = intent.rank >= RANK["submitting"] and now_ms < intent.not_before_ms
        return "wait" if waits else "expire"
    since_submit_ms = now_ms - intent.submit_ms
    match intent.state:
        case _ if now_ms < intent.not_before_ms:
            return "wait"
        case "accepted":
            return "accept"
        case "stored":
            return "create"
        case "submitting":
            return "find" if since_submit_ms >= policy.find_after_s * 1000 else "wait"
        case "started":
            return "poll" if since_submit_ms >= policy.poll_after_s * 1000 else "wait"
        case "finished":
            return "settle"
        case "settled":
            return "deliver"


def expires_ms(intent: Intent, policy: FlowTimes) -> int:
    """When a task without an outcome is given up."""
    asked = intent.rank >= RANK["submitting"]
    begun_ms = intent.submit_ms if asked else intent.created_ms
    return begun_ms + (policy.deadline_s + policy.margin_s) * 1000


def may_have_output(intent: Intent, now_ms: int, policy: FlowTimes) -> bool:
    """Whether a provider that does not answer may still keep the output of a submitted task."""
    kept_ms = (policy.deadline_s + policy.output_life_s) * 1000
    return now_ms < intent.submit_ms + kept_ms


def may_create_again(intent: Intent, now_ms: int, policy: FlowTimes) -> bool:
    """Whether a create whose answer was lost, and that no list shows, may be repeated."""
    waited_ms = now_ms - intent.submit_ms
    return intent.attempts < policy.max_creates and waited_ms >= policy.grace_s * 1000


def schedule_retry(
    intent: Intent, now_ms: int, policy: FlowTimes, after_s: float | None = None
) -> Intent:
    """Wait after a temporary problem: as long as asked, else by exponential backoff."""
    backoff = retry.exponential(policy.backoff_s, policy.longest_backoff_s, jitter=0)
    backoff_s = retry.delay_s(backoff, intent.tries + 1, 0.0)
    wait_s = backoff_s if after_s is None else min(max(after_s, 1), policy.delivery_life_s)
    return replace(
        intent, tries=intent.tries + 1, not_before_ms=now_ms + round(wait_s * 1000), lease=None
    )
