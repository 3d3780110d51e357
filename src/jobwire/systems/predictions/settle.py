"""The step `settle` of a task: store the outputs, publish the outcome in the task object (P-14).

Called by `flow.py`; `steps.py` stores outputs that came as data URLs before it records them.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Final

from msgspec.structs import replace

from jobwire.systems.predictions import fetch, task
from jobwire.systems.predictions.byte_budget import InHand
from jobwire.systems.predictions.contract import FAILED, SUCCEEDED, TaskErrorCode, output_key
from jobwire.systems.predictions.flow_deps import FlowDeps, Stepped
from jobwire.systems.predictions.http_client import NoAnswer
from jobwire.systems.predictions.images import is_data_url
from jobwire.systems.predictions.intent import Intent, News, Outcome, Output, may_have_output
from jobwire.systems.predictions.records import Current

log: Final = logging.getLogger("jobwire.predictions")


async def settle(deps: FlowDeps, current: Current, owner: str, hand: InHand) -> Stepped:
    """Store the outputs, publish the outcome in the task object, record it (P-14)."""
    outcome = current.intent.outcome
    assert outcome is not None
    if outcome.status == SUCCEEDED:
        stored = await _store_outputs(deps, current.intent, outcome, hand)
        if stored is None:
            return await deps.schedule_retry(current)
        outcome = stored
    published = await _publish(deps, current.intent, outcome)
    if published is None:
        return await ended_elsewhere(deps, current)

    def settled(intent: Intent) -> Intent:
        if intent.state != "finished":
            return intent
        return deps.leased(
            replace(intent, state="settled", outcome=published, tries=0, not_before_ms=0), owner
        )

    return await deps.records.update(current, settled), True


async def with_stored_data(deps: FlowDeps, intent: Intent, news: News) -> News:
    """The news with every data URL stored as an object: an intent holds no pictures."""
    outcome = news.outcome
    if outcome is None or not any(is_data_url(each.url) for each in outcome.outputs):
        return news
    known = replace(intent, prediction_id=news.prediction_id)
    with deps.budget.in_hand() as hand:
        stored = await _store_outputs(deps, known, outcome, hand, only_data=True)
    return replace(news, outcome=stored)


async def ended_elsewhere(deps: FlowDeps, current: Current) -> Stepped:
    """Another program ended the task and answered the user (P-15)."""
    log.info("task ended by another program task_id=%(task_id)s", {"task_id": current.intent.tid})
    return await deps.mark_delivered(current)


async def _store_outputs(
    deps: FlowDeps,
    intent: Intent,
    outcome: Outcome,
    hand: InHand,
    *,
    only_data: bool = False,
) -> Outcome | None:
    """The outcome with every picture stored; None where the provider's host did not answer.

    `only_data`: only the pictures in data URLs.
    """
    stored: list[Output] = []
    problem = TaskErrorCode.OUTPUT_REFUSED
    taken = {each.key for each in outcome.outputs}
    for index, output in enumerate(outcome.outputs):
        is_data = is_data_url(output.url)
        if output.key is not None or output.text or (only_data and not is_data):
            stored.append(output)
            continue
        keep = len(outcome.outputs) == 1
        answer = await _store_output(deps, intent, index, output, taken, hand, keep=keep)
        match answer:
            case Output():
                taken.add(answer.key)
                stored.append(answer)
            case fetch.Expired():
                problem = TaskErrorCode.OUTPUT_EXPIRED
            case fetch.Refused(reason):
                log.warning(
                    "output refused task_id=%(task_id)s reason=%(reason)s",
                    {"task_id": intent.tid, "reason": reason},
                )
            case fetch.Unfit(reason):
                log.info(
                    "output goes to the user as a link task_id=%(task_id)s reason=%(reason)s",
                    {"task_id": intent.tid, "reason": reason},
                )
                stored.append(output)
            case NoAnswer(reason):
                if may_have_output(intent, deps.clock.now_ms(), deps.policy):
                    log.warning(
                        "output not fetched task_id=%(task_id)s error=%(error)s; will retry",
                        {"task_id": intent.tid, "error": reason},
                    )
                    return None
                problem = TaskErrorCode.OUTPUT_EXPIRED
    if stored:
        return replace(outcome, outputs=tuple(stored))
    return Outcome(FAILED, code=str(problem))


async def _store_output(
    deps: FlowDeps,
    intent: Intent,
    index: int,
    output: Output,
    taken: Container[str | None],
    hand: InHand,
    *,
    keep: bool,
) -> Output | fetch.Expired | fetch.Refused | fetch.Unfit | NoAnswer:
    """Copy one picture into the bucket. `keep`: hold it for its delivery; several are read again
    one by one, because ten of them would fill a small machine."""
    answer = await deps.fetcher.fetch(output.url or "", hand)
    if not isinstance(answer, fetch.Fetched):
        return answer
    key = _free_key(intent, index, answer.mime, taken)
    await deps.bucket.put(key, answer.body, content_type=answer.mime)
    if keep:
        hand.keep(key, answer.body)
    url = None if is_data_url(output.url) else output.url
    return Output(url=url, key=key, mime=answer.mime, size=len(answer.body))


def _free_key(intent: Intent, index: int, mime: str, taken: Container[str | None]) -> str:
    """The key by the output's place; places shift where a data URL before it was refused."""
    assert intent.prediction_id is not None
    while (key := output_key(intent.photo.date_s, intent.prediction_id, index, mime)) in taken:
        index += 1
    return key


async def _publish(deps: FlowDeps, intent: Intent, outcome: Outcome) -> Outcome | None:
    """Write the end into the task object: the end that counts, or None if another program's."""
    prediction_id = intent.prediction_id
    while prediction_id is not None:
        try:
            found = await deps.records.load_task(prediction_id)
        except task.BadTask as error:
            log.warning(
                "task object not written prediction_id=%(prediction_id)s error=%(error)s",
                {"prediction_id": prediction_id, "error": error},
            )
            return outcome
        now_ms = deps.clock.now_ms()
        if found is None:
            if intent.input is None:
                return outcome
            document = task.with_outcome(deps.document_of(intent), intent.tid, outcome, now_ms)
            if await deps.records.create_task(prediction_id, document):
                return outcome
        elif found.task.terminal:
            # P-5: a published end never changes, whichever of our drivers wrote it.
            return found.task.outcome if found.task.settled_by_us else None
        else:
            document = task.with_outcome(found.task.document, intent.tid, outcome, now_ms)
            if await deps.records.replace_task(found, document):
                return outcome
    return outcome
