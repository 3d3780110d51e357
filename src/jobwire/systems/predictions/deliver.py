"""The result into the chat, once (P-17).

A picture is only ever placed by editing a text message of ours: an edit can be repeated. Without
a known message a text is sent first and its id recorded; only that send cannot be repeated, so a
lost answer leaves at worst a spare line of text.
"""

from __future__ import annotations

import logging
from typing import Final

from msgspec.structs import replace

from jobwire.objects import Missing, TooLarge
from jobwire.systems.predictions import chat, texts
from jobwire.systems.predictions.byte_budget import InHand
from jobwire.systems.predictions.contract import SUCCEEDED, TaskErrorCode
from jobwire.systems.predictions.flow_deps import FlowDeps, Stepped
from jobwire.systems.predictions.intent import Intent, Output, Slot, schedule_retry
from jobwire.systems.predictions.records import Current
from jobwire.systems.predictions.task import known_code

log: Final = logging.getLogger("jobwire.predictions")

# After so many texts for one message without an answer, the next ones are rare: each may have
# reached the chat.
_MANY_UNANSWERED: Final = 5
_RARE_S: Final = 3600.0

_Answer = chat.Edited | chat.MessageGone | chat.Blocked | chat.Later | chat.NoAnswer | chat.Rejected


async def deliver(deps: FlowDeps, current: Current, owner: str, hand: InHand) -> Stepped:
    """Place the next picture, or the words of a failure; one message a call."""
    intent = current.intent
    outcome = intent.outcome
    assert outcome is not None
    succeeded = outcome.status == SUCCEEDED
    silent = intent.quiet or outcome.code == TaskErrorCode.BLOCKED
    if silent or (not succeeded and _too_old(deps, intent)):
        return await deps.mark_delivered(current)
    index = _next_index(intent) if succeeded else 0
    if index is None:
        return await deps.mark_delivered(current)
    slot = intent.slots[index] if index < len(intent.slots) else None
    if slot is None or slot.message_id is None:
        return await _send(deps, current, owner, index, final=not succeeded)
    photo = intent.photo
    if succeeded and outcome.outputs[index].key is None:
        output = outcome.outputs[index]
        words = output.text or texts.link(photo.language, output.url or "")
        answer: _Answer = await deps.chat.edit_text(photo.chat_id, slot.message_id, words)
    elif succeeded:
        output = outcome.outputs[index]
        picture = await _picture(deps, output, hand)
        if picture is None:
            log.error(
                "stored picture not found key=%(key)s task_id=%(task_id)s",
                {"key": output.key, "task_id": intent.tid},
            )
            answer = chat.Rejected("the picture is not in the bucket any more")
        else:
            answer = await deps.chat.edit_picture(
                photo.chat_id, slot.message_id, picture, output.mime or ""
            )
            del picture
        hand.drop()
        if isinstance(answer, chat.Rejected):
            log.warning(
                "chat refused the picture task_id=%(task_id)s reason=%(reason)s",
                {"task_id": intent.tid, "reason": answer.reason},
            )
            words = texts.error(
                TaskErrorCode.OUTPUT_REFUSED, photo.language, limit_mb=deps.max_image_mb
            )
            answer = await deps.chat.edit_text(photo.chat_id, slot.message_id, words)
    else:
        answer = await deps.chat.edit_text(
            photo.chat_id, slot.message_id, _error_text(deps, intent)
        )
    match answer:
        case chat.MessageGone():
            return await _change_slot(deps, current, index, Slot("sending"))
        case chat.Edited() | chat.Rejected():
            return await _change_slot(deps, current, index, Slot("edited", slot.message_id))
        case _:
            return await _put_off(deps, current, index, slot, answer)


async def _send(
    deps: FlowDeps, current: Current, owner: str, index: int, *, final: bool
) -> Stepped:
    """Send a text to be edited, or, where `final`, the words of a failure themselves."""
    before = current.intent.slots[index] if index < len(current.intent.slots) else None
    refused = Slot("sending", None, before.unanswered if before else 0)
    # P-37: after a send without an answer, the next one waits until the chat service answers.
    if (
        before
        and before.unanswered
        and isinstance(down := await deps.chat.answers(), chat.NoAnswer)
    ):
        return await _put_off(
            deps, current, index, before, chat.NoAnswer(down.reason, not_done=True)
        )
    awaited = replace(refused, unanswered=refused.unanswered + 1)

    def claim(intent: Intent) -> Intent:
        seen = intent.slots[index] if index < len(intent.slots) else None
        if seen != before or intent.held_by_other(owner, deps.clock.now_ms()):
            return intent
        slots = (*intent.slots[:index], awaited, *intent.slots[index + 1 :])
        return replace(intent, slots=slots, lease=deps.lease(owner))

    claimed = await deps.records.update(current, claim)
    if claimed is None or not claimed.written:
        return claimed, True
    photo = claimed.intent.photo
    if final:
        text = _error_text(deps, claimed.intent)
    else:
        text = texts.received(photo.language) if index == 0 else texts.result(photo.language)
    answer = await deps.chat.send_text(photo.chat_id, text, photo.message_id)
    match answer:
        case chat.Sent(message_id):
            sent = Slot("edited" if final else "sent", message_id)
            return await _change_slot(deps, claimed, index, sent)
        case chat.Rejected(reason):
            log.error(
                "chat refused a text task_id=%(task_id)s reason=%(reason)s",
                {"task_id": claimed.intent.tid, "reason": reason},
            )
            return await _give_up(deps, claimed, index)
        # P-37: only a send whose result is unknown counts.
        case chat.Later() | chat.Blocked() | chat.NoAnswer(not_done=True):
            return await _put_off(deps, claimed, index, refused, answer)
        case chat.NoAnswer():
            return await _put_off(deps, claimed, index, awaited, answer)


async def _change_slot(deps: FlowDeps, current: Current, index: int, slot: Slot) -> Stepped:
    before = current.intent.slots[index]

    def change(intent: Intent) -> Intent:
        if intent.state != "settled" or intent.slots[index : index + 1] != (before,):
            return intent
        slots = (*intent.slots[:index], slot, *intent.slots[index + 1 :])
        changed = replace(intent, slots=slots, tries=0)
        if _next_index(changed) is None:
            return replace(changed, state="delivered", lease=None)
        return changed

    return await deps.records.update(current, change), True


async def _put_off(
    deps: FlowDeps, current: Current, index: int, slot: Slot, answer: _Answer
) -> Stepped:
    """Try again later, until the delivery has taken too long; `slot` is kept until then."""
    intent, before = current.intent, current.intent.slots[index]
    if isinstance(answer, chat.Blocked):
        log.info("user blocked the bot task_id=%(task_id)s", {"task_id": intent.tid})
        return await deps.mark_delivered(current, TaskErrorCode.BLOCKED)
    if _too_old(deps, intent):
        return await _give_up(deps, current, index)
    after_s = answer.after_s if isinstance(answer, chat.Later) else None
    done = not (isinstance(answer, chat.NoAnswer) and answer.not_done)
    if done and slot.unanswered >= _MANY_UNANSWERED:
        after_s = _RARE_S
    log.warning(
        "delivery not confirmed answer=%(answer)s task_id=%(task_id)s; will retry",
        {"answer": type(answer).__name__, "task_id": intent.tid},
    )

    def later(intent: Intent) -> Intent:
        if intent.state != "settled" or intent.slots[index : index + 1] != (before,):
            return intent
        slots = (*intent.slots[:index], slot, *intent.slots[index + 1 :])
        now_ms = deps.clock.now_ms()
        return schedule_retry(replace(intent, slots=slots), now_ms, deps.policy, after_s)

    return await deps.records.update(current, later), True


async def _give_up(deps: FlowDeps, current: Current, index: int) -> Stepped:
    """Tell user and owner that a paid picture will not be delivered (P-37); best effort."""
    intent = current.intent
    outcome, photo, slot = intent.outcome, intent.photo, intent.slots[index]
    assert outcome is not None
    if outcome.status != SUCCEEDED:
        return await deps.mark_delivered(current)
    key = outcome.outputs[index].key or ""
    log.error(
        "paid picture not delivered task_id=%(task_id)s prediction_id=%(prediction_id)s "
        "chat_id=%(chat_id)s key=%(key)s",
        {
            "task_id": intent.tid,
            "prediction_id": intent.prediction_id,
            "chat_id": photo.chat_id,
            "key": key,
        },
    )
    words = texts.error(TaskErrorCode.UNDELIVERED, photo.language, limit_mb=deps.max_image_mb)
    told: object = chat.MessageGone()
    if slot.message_id is not None:
        told = await deps.chat.edit_text(photo.chat_id, slot.message_id, words)
    if isinstance(told, chat.MessageGone):
        await deps.chat.send_text(photo.chat_id, words, photo.message_id)
    if deps.owner_chat:
        alert = texts.undelivered_alert(intent.prediction_id or "", photo.chat_id, key)
        await deps.chat.send_text(deps.owner_chat, alert, None)
    return await deps.mark_delivered(current, TaskErrorCode.UNDELIVERED)


def _too_old(deps: FlowDeps, intent: Intent) -> bool:
    """Whether the delivery has been tried for as long as it is (P-37)."""
    age_ms = deps.clock.now_ms() - intent.created_ms
    return age_ms > deps.policy.delivery_life_s * 1000


def _next_index(intent: Intent) -> int | None:
    """The first message that has not its final content; None when all have."""
    assert intent.outcome is not None
    wanted = len(intent.outcome.outputs) if intent.outcome.status == SUCCEEDED else 1
    for index in range(wanted):
        if index >= len(intent.slots) or intent.slots[index].state != "edited":
            return index
    return None


async def _picture(deps: FlowDeps, output: Output, hand: InHand) -> chat.Picture | None:
    """The picture in hand, else from the bucket; None if it is not there any more."""
    key, max_bytes = output.key or "", deps.fetcher.max_bytes
    if (kept := hand.kept(key)) is not None:
        return kept
    await hand.reserve(output.size or max_bytes)
    try:
        found = await deps.bucket.read(key, max_bytes=max_bytes)
    except TooLarge:
        return None
    return None if isinstance(found, Missing) else found


def _error_text(deps: FlowDeps, intent: Intent) -> str:
    assert intent.outcome is not None
    code = known_code(intent.outcome.code)
    return texts.error(code, intent.photo.language, limit_mb=deps.max_image_mb)
