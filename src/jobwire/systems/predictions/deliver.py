"""The result into the chat, once (P-17).

A picture is only ever placed by editing a text message of ours: an edit can be repeated. Without
a known message a text is sent first and its id recorded; only that send cannot be repeated, so a
lost answer leaves at worst a spare line of text.
"""

from __future__ import annotations

import logging
from typing import Final

from msgspec.structs import replace

from jobwire.objects import Found, TooLarge
from jobwire.systems.predictions import chat, texts
from jobwire.systems.predictions.contract import SUCCEEDED, ErrorCode
from jobwire.systems.predictions.flow_deps import FlowDeps, Stepped
from jobwire.systems.predictions.intent import Intent, Slot
from jobwire.systems.predictions.records import Current
from jobwire.systems.predictions.task import known_code

log: Final = logging.getLogger("jobwire.predictions")

# Texts sent for one message whose answers were lost; then the delivery is given up.
_MAX_SENDS: Final = 5


async def deliver(
    deps: FlowDeps, current: Current, owner: str, pictures: dict[str, bytes]
) -> Stepped:
    """Place the next picture, or the words of a failure; one message a call."""
    intent = current.intent
    outcome = intent.outcome
    assert outcome is not None
    age_s = (deps.clock.now_ms() - intent.created_ms) / 1000
    silent = intent.quiet or outcome.code == ErrorCode.BLOCKED
    if silent or age_s > deps.policy.delivery_life_s:
        return await deps.mark_delivered(current)
    succeeded = outcome.status == SUCCEEDED
    index = _next_index(intent) if succeeded else 0
    if index is None:
        return await deps.mark_delivered(current)
    slot = intent.slots[index] if index < len(intent.slots) else None
    if slot is None or slot.message_id is None:
        return await _send(deps, current, owner, index, final=not succeeded)
    photo = intent.photo
    if succeeded:
        output = outcome.outputs[index]
        picture = await _picture(deps, output.key or "", pictures)
        if picture is None:
            log.error("stored picture not found  key=%s task=%s", output.key, intent.tid)
            answer: object = chat.Rejected("the picture is not in the bucket any more")
        else:
            answer = await deps.chat.edit_picture(
                photo.chat_id, slot.message_id, picture, output.mime or ""
            )
        if isinstance(answer, chat.Rejected):
            log.warning("chat refused the picture: %s  task=%s", answer.reason, intent.tid)
            words = texts.error(
                ErrorCode.OUTPUT_REFUSED, photo.language, limit_mb=deps.max_image_mb
            )
            answer = await deps.chat.edit_text(photo.chat_id, slot.message_id, words)
    else:
        answer = await deps.chat.edit_text(
            photo.chat_id, slot.message_id, _error_text(deps, intent)
        )
    match answer:
        case chat.MessageGone():
            return await _change_slot(deps, current, index, Slot("sending", None, slot.sends))
        case chat.Edited() | chat.Rejected():
            edited = Slot("edited", slot.message_id, slot.sends)
            return await _change_slot(deps, current, index, edited)
        case _:
            return await _unfinished(deps, current, answer)


async def _send(
    deps: FlowDeps, current: Current, owner: str, index: int, *, final: bool
) -> Stepped:
    """Send a text to be edited, or, where `final`, the words of a failure themselves."""
    before = current.intent.slots[index] if index < len(current.intent.slots) else None
    sends = before.sends + 1 if before else 1
    if sends > _MAX_SENDS:
        log.error("delivery abandoned: no answer to %d sends  task=%s", sends, current.intent.tid)
        return await deps.mark_delivered(current)

    def claim(intent: Intent) -> Intent:
        seen = intent.slots[index] if index < len(intent.slots) else None
        if seen != before or intent.held_by_other(owner, deps.clock.now_ms()):
            return intent
        slots = (*intent.slots[:index], Slot("sending", None, sends), *intent.slots[index + 1 :])
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
            sent = Slot("edited" if final else "sent", message_id, sends)
            return await _change_slot(deps, claimed, index, sent)
        case chat.Rejected(reason):
            log.error("chat refused a text: %s  task=%s", reason, claimed.intent.tid)
            return await deps.mark_delivered(claimed)
        case _:
            return await _unfinished(deps, claimed, answer)


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


async def _unfinished(deps: FlowDeps, current: Current, answer: object) -> Stepped:
    """Blocked ends the task; anything else is retried later."""
    if isinstance(answer, chat.Blocked):
        log.info("user blocked the bot  task=%s", current.intent.tid)
        return await deps.mark_delivered(current)
    after_s = answer.after_s if isinstance(answer, chat.Later) else None
    log.warning(
        "delivery not confirmed (%s); will retry later  task=%s",
        type(answer).__name__,
        current.intent.tid,
    )
    return await deps.schedule_retry(current, after_s=after_s)


def _next_index(intent: Intent) -> int | None:
    """The first message that has not its final content; None when all have."""
    assert intent.outcome is not None
    wanted = len(intent.outcome.outputs) if intent.outcome.status == SUCCEEDED else 1
    for index in range(wanted):
        if index >= len(intent.slots) or intent.slots[index].state != "edited":
            return index
    return None


async def _picture(deps: FlowDeps, key: str, pictures: dict[str, bytes]) -> bytes | None:
    if key in pictures:
        return pictures[key]
    try:
        found = await deps.bucket.get(key, max_bytes=deps.fetcher.max_bytes)
    except TooLarge:
        return None
    return found.body if isinstance(found, Found) else None


def _error_text(deps: FlowDeps, intent: Intent) -> str:
    assert intent.outcome is not None
    code = known_code(intent.outcome.code)
    return texts.error(code, intent.photo.language, limit_mb=deps.max_image_mb)
