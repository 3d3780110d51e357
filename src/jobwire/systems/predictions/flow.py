"""The one driver that submit, webhook and reconcile call (P-13, P-14, P-16).

    submit     open marker → intent → drive
    receive    find the intent → merge the news → drive
    drive      the next step of the intent, until it waits or is delivered → close

Any number of drivers may work on one task; the lease saves them double work, and the conditional
writes of the intent decide.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from msgspec.structs import replace

from jobwire.objects import ObjectsError
from jobwire.systems.predictions import steps, task
from jobwire.systems.predictions.byte_budget import InHand
from jobwire.systems.predictions.contract import PROCESSING, is_task_id
from jobwire.systems.predictions.deliver import deliver
from jobwire.systems.predictions.flow_deps import FlowDeps, Stepped
from jobwire.systems.predictions.ids import uuid_of
from jobwire.systems.predictions.intent import (
    RANK,
    Intent,
    News,
    Photo,
    Step,
    StoredInput,
    next_step,
)
from jobwire.systems.predictions.records import Current
from jobwire.systems.predictions.settle import settle

log: Final = logging.getLogger("jobwire.predictions")

_MAX_STEPS: Final = 80
_LONGEST_CAPTION: Final = 4096  # it is kept in the intent


class Receipt(Enum):
    """What became of a provider's news."""

    RECORDED = auto()
    KNOWN = auto()
    """Nothing new: the task is settled, or the news is old."""
    UNKNOWN = auto()
    """No such task yet: the provider should resend it."""
    FOREIGN = auto()
    """The news belong to another task than the URL names."""


class RecordedPhoto(NamedTuple):
    """The intent of a photo, and the driver that has its lease."""

    current: Current
    owner: str


def _ignore() -> None:
    pass


class Flow:
    """Drives the tasks of one bot."""

    def __init__(self, deps: FlowDeps) -> None:
        self.deps = deps
        self.recorded = asyncio.Event()
        """Set by each photo that is recorded; a loop of passes waits for it (P-38)."""

    async def submit(self, photo: Photo) -> str:
        """Take a photo; the same message again is the same task. Returns the task id."""
        recorded = await self.record(photo)
        try:
            await self._drive(recorded.current, recorded.owner)
        except ObjectsError:
            raise  # the update comes again, and finds its intent
        except Exception:
            tid = recorded.current.intent.tid
            log.exception(
                "task failed here task_id=%(task_id)s; reconcile continues it", {"task_id": tid}
            )
        return recorded.current.intent.tid

    async def record(self, photo: Photo) -> RecordedPhoto:
        """Record a photo, so that it is not forgotten; `drive_recorded` continues with it."""
        deps, owner = self.deps, _new_owner()
        tid = deps.ids.of_message(deps.bot, photo.chat_id, photo.message_id or 0)
        await deps.records.open(tid)
        now_ms = deps.clock.now_ms()
        intent = Intent(
            tid=tid,
            created_ms=now_ms,
            updated_ms=now_ms,
            tenant=deps.tenant,
            photo=replace(photo, caption=photo.caption[:_LONGEST_CAPTION]),
            lease=deps.lease(owner),
        )
        current, created = await deps.records.create(intent)
        if not created:
            log.info(
                "update redelivered task_id=%(task_id)s state=%(state)s",
                {"task_id": tid, "state": current.intent.state},
            )
        self.recorded.set()
        return RecordedPhoto(current, owner)

    async def drive_recorded(
        self, recorded: RecordedPhoto, on_submitting: Callable[[], None] = _ignore
    ) -> None:
        """Do whatever can be done for a recorded photo; `on_submitting` is called before the
        provider is asked, which may take minutes."""
        await self._drive(recorded.current, recorded.owner, on_submitting)

    async def receive(self, tid: str, news: News) -> Receipt:
        """Take a provider's news, whose sender has been authenticated."""
        current = await self._find(tid, news.prediction_id)
        if isinstance(current, Receipt):
            return current
        intent, owner = current.intent, _new_owner()
        ours = uuid_of(intent.tid) in news.input_text or news.prediction_id == intent.tid
        if intent.prediction_id is None and not (intent.attempts and ours):
            return Receipt.UNKNOWN
        if intent.prediction_id not in (None, news.prediction_id):
            if not ours:
                return Receipt.FOREIGN
            # The second run of a create whose answer was lost: it never touches the task.
            log.warning(
                "task has a second prediction task_id=%(task_id)s; it is ignored",
                {"task_id": intent.tid},
            )
            return Receipt.KNOWN
        if intent.rank >= RANK["settled"]:
            await self._drive(current, owner)
            return Receipt.KNOWN
        updated, go_on = await steps.record_news(self.deps, current, owner, news)
        if updated is None:
            return Receipt.UNKNOWN
        if go_on:
            await self._continue(updated, owner)
        return Receipt.RECORDED if updated.written else Receipt.KNOWN

    async def drive(self, tid: str) -> Intent | None:
        """Do whatever can be done for a task now; None if there is no such task."""
        current = await self.deps.records.load(tid)
        if current is None:
            return None
        return await self._drive(current, _new_owner())

    async def take_over(self, found: task.TaskObject) -> str:
        """Make an intent for a task that another program submitted."""
        deps = self.deps
        tid = deps.ids.of_prediction(found.prediction_id)
        now_ms = deps.clock.now_ms()
        created_ms = min(found.created_ms or now_ms, now_ms)
        await deps.records.open(tid)
        await deps.records.create(
            Intent(
                tid=tid,
                state="started",
                created_ms=created_ms,
                updated_ms=now_ms,
                tenant=deps.tenant,
                photo=Photo(
                    chat_id=found.chat_id,
                    user_id=found.user_id,
                    message_id=found.message_id,
                    file_id=found.file_id,
                    date_s=created_ms // 1000,
                ),
                admitted=True,
                input=StoredInput(found.input_key, found.input_mime, found.input_size)
                if found.input_key
                else None,
                submit_ms=created_ms,
                prediction_id=found.prediction_id,
                running=found.status == PROCESSING,
            )
        )
        return tid

    async def _find(self, tid: str, prediction_id: str) -> Current | Receipt:
        """The intent by the URL's task id, else by the task object; or why there is none."""
        records = self.deps.records
        if is_task_id(tid) and (current := await records.load(tid)):
            return current
        try:
            found = await records.load_task(prediction_id)
        except task.BadTask as error:
            log.warning(
                "task object skipped prediction_id=%(prediction_id)s error=%(error)s",
                {"prediction_id": prediction_id, "error": error},
            )
            return Receipt.UNKNOWN
        if found is None:
            return Receipt.UNKNOWN
        recorded = found.task.tid
        if recorded and is_task_id(recorded):
            return await records.load(recorded) or Receipt.UNKNOWN
        if found.task.terminal:
            return Receipt.KNOWN
        return await records.load(await self.take_over(found.task)) or Receipt.UNKNOWN

    async def _continue(self, current: Current, owner: str) -> None:
        """Drive after the news were recorded: a failure now is reconcile's to repair."""
        try:
            await self._drive(current, owner)
        except Exception:
            log.exception(
                "task failed here task_id=%(task_id)s; reconcile continues it",
                {"task_id": current.intent.tid},
            )

    async def _drive(
        self, first: Current, owner: str, on_submitting: Callable[[], None] = _ignore
    ) -> Intent:
        with self.deps.budget.in_hand() as hand:
            return await self._drive_with(hand, first, owner, on_submitting)

    async def _drive_with(
        self, hand: InHand, first: Current, owner: str, on_submitting: Callable[[], None]
    ) -> Intent:
        deps = self.deps
        current: Current | None = first
        for _ in range(_MAX_STEPS):
            if current is None:
                log.warning("intent not found task_id=%(task_id)s", {"task_id": first.intent.tid})
                break
            intent, now_ms = current.intent, deps.clock.now_ms()
            step = next_step(intent, now_ms, deps.policy)
            if step == "close":
                await self._close(intent)
                return intent
            if intent.held_by_other(owner, now_ms):
                return intent
            holds_lease = intent.lease is not None and intent.lease.by == owner
            if step == "wait":
                go_on = False
            elif step != "poll" and not holds_lease:  # a poll changes nothing, so it needs no lease
                current = await deps.records.update(current, lambda it: deps.leased(it, owner))
                continue
            else:
                current, go_on = await self._step(step, current, owner, hand, on_submitting)
                self._count(current)
            if go_on or current is None:
                continue
            released = await deps.records.update(current, lambda it: _released(it, owner))
            if released is None or released.intent.state == current.intent.state:
                return current.intent
            # News were recorded under our lease, so their recorder left them to us.
            current = released
        return current.intent if current else first.intent

    async def _step(
        self,
        step: Step,
        current: Current,
        owner: str,
        hand: InHand,
        on_submitting: Callable[[], None],
    ) -> Stepped:
        deps = self.deps
        match step:
            case "accept":
                return await steps.accept(deps, current, owner, hand, on_submitting)
            case "create":
                return await steps.create(deps, current, owner)
            case "find":
                return await steps.find(deps, current, owner)
            case "poll":
                return await steps.poll(deps, current, owner)
            case "expire":
                return await steps.expire(deps, current, owner)
            case "settle":
                return await settle(deps, current, owner, hand)
            case "deliver":
                return await deliver(deps, current, owner, hand)
            case "wait" | "close":
                return current, False

    def _count(self, current: Current | None) -> None:
        """Count a task that the last step of this process ended."""
        if current is None or not current.written or current.intent.state != "delivered":
            return
        outcome, trouble = current.intent.outcome, current.intent.trouble
        ended = (outcome.code or trouble or outcome.status) if outcome else "elsewhere"
        self.deps.counts.add("tasks", ended)

    async def _close(self, intent: Intent) -> None:
        """The last step: nothing of a delivered task is left open."""
        await self.deps.limits.release(intent.photo.chat_id, intent.tid)
        await self.deps.records.close(intent.tid)


def _released(intent: Intent, owner: str) -> Intent:
    ours = intent.lease is not None and intent.lease.by == owner
    return replace(intent, lease=None) if ours else intent


def _new_owner() -> str:
    return secrets.token_hex(8)
