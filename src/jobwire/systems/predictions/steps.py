"""The steps of a task up to its outcome: accept, create, find, poll, expire.

Called by `flow.py` alone. A step does its work, records it, and returns the intent as it is now
and whether to go on. A crash between any two lines is recovered by doing the step again, by
the next driver of the task; the two calls that cannot be repeated are preceded by a record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from jobwire.systems.predictions import chat, images, task, texts
from jobwire.systems.predictions import intent as rules
from jobwire.systems.predictions.byte_budget import InHand
from jobwire.systems.predictions.contract import (
    INPUT_TYPES,
    PROCESSING,
    QUEUED,
    TaskErrorCode,
    input_key,
)
from jobwire.systems.predictions.flow_deps import FlowDeps, Stepped
from jobwire.systems.predictions.http_client import NoAnswer
from jobwire.systems.predictions.ids import uuid_of
from jobwire.systems.predictions.intent import (
    Disagreement,
    Intent,
    Merged,
    News,
    OtherPrediction,
    Slot,
    StoredInput,
)
from jobwire.systems.predictions.limits import OverLimit
from jobwire.systems.predictions.providers import Busy, CreateRejected
from jobwire.systems.predictions.records import Change, Current
from jobwire.systems.predictions.settle import ended_elsewhere, with_stored_data

log: Final = logging.getLogger("jobwire.predictions")

_ALERT_EVERY_MS: Final = 3_600_000


async def accept(
    deps: FlowDeps,
    current: Current,
    owner: str,
    hand: InHand,
    on_submitting: Callable[[], None],
) -> Stepped:
    """Limits, placeholder, photo; then ask the provider."""
    intent = current.intent
    photo = intent.photo
    if photo.size is not None and photo.size > deps.max_image_bytes:
        return await _fail(deps, current, TaskErrorCode.TOO_LARGE)
    if not intent.admitted:
        admitted = await deps.limits.admit(photo, intent.tid)
        if isinstance(admitted, OverLimit):
            refused = admitted

            def over_limit(intent: Intent) -> Intent:
                return replace(rules.failed(intent, refused.code), quiet=refused.quiet)

            return await deps.records.update(current, over_limit), True
        photo = replace(photo, caption=admitted.caption)
    if not intent.slots:
        placed = await _send_placeholder(deps, current, owner, photo.caption)
        if placed is None or placed.intent.state != "accepted" or not placed.intent.slots:
            return placed, True
        current = placed
    await hand.reserve(photo.size or deps.max_image_bytes)
    body = await deps.chat.fetch_photo(photo.file_id or "", deps.max_image_bytes)
    match body:
        case chat.PhotoTooLarge():
            return await _fail(deps, current, TaskErrorCode.TOO_LARGE)
        case chat.Rejected(reason):
            return await _fail(deps, current, TaskErrorCode.PHOTO_UNAVAILABLE, reason)
        case NoAnswer(reason):
            log.warning(
                "photo not downloaded task_id=%(task_id)s error=%(error)s; will retry",
                {"task_id": intent.tid, "error": reason},
            )
            return await deps.schedule_retry(current, TaskErrorCode.PHOTO_UNAVAILABLE)
        case chat.Later(after_s):
            return await deps.schedule_retry(current, TaskErrorCode.PHOTO_UNAVAILABLE, after_s)
        case bytes() | memoryview():
            pass
    mime = images.sniff(body)
    if mime not in INPUT_TYPES:
        return await _fail(deps, current, TaskErrorCode.NOT_A_PHOTO)
    if len(body) > deps.max_image_bytes:
        return await _fail(deps, current, TaskErrorCode.TOO_LARGE)
    key = input_key(photo.date_s, uuid_of(intent.tid), mime)
    await deps.bucket.put(key, body, content_type=mime)
    given = StoredInput(key, mime, len(body))
    # The provider may take minutes.
    del body
    hand.drop()
    on_submitting()
    return await _submit(deps, current, owner, given)


async def create(deps: FlowDeps, current: Current, owner: str) -> Stepped:
    """Ask the provider again, which was busy."""
    assert current.intent.input is not None
    return await _submit(deps, current, owner, current.intent.input)


async def find(deps: FlowDeps, current: Current, owner: str) -> Stepped:
    """Look for the prediction of a create whose answer was lost; create again if there is none."""
    intent = current.intent
    request = await deps.request_of(intent)
    found = await deps.provider.find(request, intent.created_ms)
    if isinstance(found, NoAnswer):
        log.warning(
            "provider's list not read task_id=%(task_id)s reason=%(reason)s",
            {"task_id": intent.tid, "reason": found.reason},
        )
        return current, False
    if found:
        log.info(
            "prediction found in the provider's list task_id=%(task_id)s", {"task_id": intent.tid}
        )
        first, *others = found
        for other in others:
            if other.outcome is None:
                await deps.provider.cancel(other.prediction_id)
        return await record_news(deps, current, owner, first)
    if not rules.may_create_again(intent, deps.clock.now_ms(), deps.policy):
        return current, False
    log.warning(
        "prediction not in the provider's list task_id=%(task_id)s; create is repeated",
        {"task_id": intent.tid},
    )
    assert intent.input is not None
    return await _submit(deps, current, owner, intent.input)


async def poll(deps: FlowDeps, current: Current, owner: str) -> Stepped:
    """Write a missing task object, see another program's end of it, ask the provider."""
    intent = current.intent
    assert intent.prediction_id is not None
    found = None
    try:
        found = await deps.records.load_task(intent.prediction_id)
        if found is None and intent.input is not None:
            await _create_task(deps, intent)
    except task.BadTask as error:
        log.warning(
            "task object skipped prediction_id=%(prediction_id)s error=%(error)s",
            {"prediction_id": intent.prediction_id, "error": error},
        )
    if found and found.task.terminal and not found.task.settled_by_us:
        return await ended_elsewhere(deps, current)
    news = await deps.provider.poll(intent.prediction_id, await deps.request_of(intent))
    if not isinstance(news, News):
        log.info(
            "prediction not read answer=%(answer)s task_id=%(task_id)s",
            {"answer": type(news).__name__, "task_id": intent.tid},
        )
        return current, False
    if news.outcome is None:
        updated = await deps.records.update(current, _merging(deps, news, owner))
        if found and news.running and found.task.status == QUEUED:
            document = task.with_status(found.task.document, PROCESSING, deps.clock.now_ms())
            await deps.records.replace_task(found, document)
        return updated, False
    return await record_news(deps, current, owner, news)


async def expire(deps: FlowDeps, current: Current, owner: str) -> Stepped:
    """Give up a task that is too old, unless the provider has its outcome or does not answer."""
    intent = current.intent
    code = TaskErrorCode(intent.trouble) if intent.trouble else TaskErrorCode.TIMEOUT
    if intent.submit_ms:
        request = await deps.request_of(intent)
        if intent.prediction_id:
            asked = await deps.provider.poll(intent.prediction_id, request)
            found = [asked] if isinstance(asked, News) else asked
        else:
            found = await deps.provider.find(request, intent.created_ms)
        now_ms = deps.clock.now_ms()
        if isinstance(found, NoAnswer) and rules.may_have_output(intent, now_ms, deps.policy):
            log.warning(
                "provider not asked task_id=%(task_id)s reason=%(reason)s; will retry",
                {"task_id": intent.tid, "reason": found.reason},
            )
            return await deps.schedule_retry(current)
        last = found if isinstance(found, list) else []
        if last and last[0].outcome is not None:
            return await record_news(deps, current, owner, last[0])
        for unfinished in last:
            await deps.provider.cancel(unfinished.prediction_id)
    log.warning(
        "task without outcome in time code=%(code)s task_id=%(task_id)s",
        {"code": code, "task_id": intent.tid},
    )
    return await _fail(deps, current, code)


async def record_news(deps: FlowDeps, current: Current, owner: str, news: News) -> Stepped:
    """Merge news of the provider; ask it where two ends disagree; write a missing task object."""
    known = rules.merge(current.intent, news)
    if isinstance(known, Disagreement):
        assert current.intent.prediction_id is not None
        truth = await deps.provider.poll(
            current.intent.prediction_id, await deps.request_of(current.intent)
        )
        if not isinstance(truth, News):
            return current, True
        truth = await with_stored_data(deps, current.intent, truth)
        return await deps.records.update(current, lambda it: rules.overruled(it, truth)), True
    if isinstance(known, Merged):
        news = await with_stored_data(deps, current.intent, news)
    updated = await deps.records.update(current, _merging(deps, news, owner))
    if updated is None:
        return None, False
    if isinstance(rules.merge(updated.intent, news), OtherPrediction):
        await deps.provider.cancel(news.prediction_id)
        return updated, True
    if updated.intent.state == "started" and updated.intent.input is not None:
        await _create_task(deps, updated.intent)
    return updated, True


def _merging(deps: FlowDeps, news: News, owner: str) -> Change:
    def change(intent: Intent) -> Intent:
        merged = rules.merge(intent, news)
        if not isinstance(merged, Merged):
            return intent
        if merged.intent.state == "finished":
            return deps.leased(merged.intent, owner)
        # Nothing to do before the provider's next news.
        ours = intent.lease is not None and intent.lease.by == owner
        return replace(merged.intent, lease=None) if ours else merged.intent

    return change


async def _send_placeholder(
    deps: FlowDeps, current: Current, owner: str, caption: str
) -> Current | None:
    awaited = Slot("sending", unanswered=1)

    def claim(intent: Intent) -> Intent:
        if intent.state != "accepted" or intent.slots:
            return intent
        leased = deps.leased(intent, owner)
        photo = replace(leased.photo, caption=caption)
        return replace(leased, admitted=True, photo=photo, slots=(awaited,))

    claimed = await deps.records.update(current, claim)
    if claimed is None or not claimed.written:
        return claimed
    photo = claimed.intent.photo
    answer = await deps.chat.send_text(
        photo.chat_id, texts.received(photo.language), photo.message_id
    )

    def become(slot: Slot) -> Change:
        def change(intent: Intent) -> Intent:
            # Another message may have taken this place since; then ours is a spare line.
            if intent.slots[:1] != (awaited,):
                return intent
            return replace(intent, slots=(slot, *intent.slots[1:]))

        return change

    match answer:
        case chat.Sent(message_id):
            return await deps.records.update(claimed, become(Slot("sent", message_id)))
        # P-39: a chat that refuses a text of ours would refuse the result too.
        case chat.Blocked() | chat.Rejected():
            log.info(
                "chat refuses messages task_id=%(task_id)s; provider not asked",
                {"task_id": claimed.intent.tid},
            )
            return await deps.records.update(
                claimed, lambda intent: rules.failed(intent, TaskErrorCode.BLOCKED)
            )
        # No placeholder, or an unknown one: the delivery sends a text of its own.
        case chat.Later() | NoAnswer(not_done=True):
            return await deps.records.update(claimed, become(Slot("sending")))
        case _:
            return claimed


async def _submit(deps: FlowDeps, current: Current, owner: str, given: StoredInput) -> Stepped:
    """Record that the provider is being asked, then ask it, once."""
    seen = current.intent

    def submitting(intent: Intent) -> Intent:
        same = (intent.state, intent.attempts) == (seen.state, seen.attempts)
        if not same or intent.held_by_other(owner, deps.clock.now_ms()):
            return intent
        return replace(
            intent,
            state="submitting",
            input=given,
            attempts=intent.attempts + 1,
            submit_ms=deps.clock.now_ms(),
            lease=deps.lease(owner),
        )

    asked = await deps.records.update(current, submitting)
    if asked is None or not asked.written:
        return asked, True
    answer = await deps.provider.create(await deps.request_of(asked.intent))
    match answer:
        case News():
            return await record_news(deps, asked, owner, answer)
        case Busy(after_s):
            log.info(
                "provider is busy task_id=%(task_id)s; create repeated later", {"task_id": seen.tid}
            )
            return await deps.records.update(asked, _not_created(deps, after_s)), True
        case NoAnswer(reason, not_done=True):
            log.warning(
                "provider not asked task_id=%(task_id)s reason=%(reason)s; will retry later",
                {"task_id": seen.tid, "reason": reason},
            )
            return await deps.records.update(asked, _not_created(deps, None)), True
        case CreateRejected(reason):
            log.error(
                "provider refused task_id=%(task_id)s reason=%(reason)s",
                {"task_id": seen.tid, "reason": reason},
            )
            if not answer.of_account:
                return await _fail(deps, asked, TaskErrorCode.PROVIDER_REJECTED)
            await _tell_owner(deps, texts.account_alert(reason))
            return await _fail(deps, asked, TaskErrorCode.PROVIDER_ACCOUNT)
        case NoAnswer(reason):
            log.warning(
                "no answer to create task_id=%(task_id)s reason=%(reason)s; searched in the "
                "provider's list later",
                {"task_id": seen.tid, "reason": reason},
            )
            return asked, True


async def _tell_owner(deps: FlowDeps, alert: str) -> None:
    """Best effort, and not for each photo."""
    now_ms = deps.clock.now_ms()
    if deps.owner_chat and now_ms - deps.alerted_ms.get(alert, 0) >= _ALERT_EVERY_MS:
        deps.alerted_ms[alert] = now_ms
        await deps.chat.send_text(deps.owner_chat, alert, None)


def _not_created(deps: FlowDeps, after_s: float | None) -> Change:
    def change(intent: Intent) -> Intent:
        if intent.state != "submitting" or intent.prediction_id is not None:
            return intent
        # An earlier create without an answer may still have happened: then look for it first.
        earlier = intent.attempts > 1
        back = replace(
            intent,
            state="submitting" if earlier else "stored",
            attempts=intent.attempts - 1,
            trouble=str(TaskErrorCode.BUSY),
        )
        return rules.schedule_retry(back, deps.clock.now_ms(), deps.policy, after_s)

    return change


async def _create_task(deps: FlowDeps, intent: Intent) -> None:
    assert intent.prediction_id is not None
    await deps.records.create_task(intent.prediction_id, deps.document_of(intent))


async def _fail(
    deps: FlowDeps, current: Current, code: TaskErrorCode, message: str | None = None
) -> Stepped:
    return await deps.records.update(
        current, lambda intent: rules.failed(intent, code, message)
    ), True
