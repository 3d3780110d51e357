"""The bucket: does it answer, does the store keep the promises that we stand on, and do old
objects leave it, and no others?

The probe writes a few objects under a random key of its own and removes them again.
"""

from collections.abc import AsyncIterator, Iterator, Sequence

from jobwire.doctor.finding import Finding
from jobwire.objects import Bucket, BucketConfig, ObjectsError, StoreRefused, lifecycle
from jobwire.objects.lifecycle import LifecycleUnsupported, Rule, StoredRule
from jobwire.objects.probe import probe


async def examine(
    config: BucketConfig, rules: Sequence[Rule], *, cure: str
) -> AsyncIterator[Finding]:
    """Everything about one bucket: `rules` are to keep it clean, `cure` is what to do if it is not
    there."""
    bucket = Bucket(config)
    try:
        await bucket.ping()
        yield Finding("bucket", "ok", config.where)
        await probe(bucket)
        yield Finding("bucket promises", "ok", "conditional writes are kept")
        for finding in judge(await lifecycle.show(bucket.calls), rules):
            yield finding
    except StoreRefused as error:
        yield Finding(
            "bucket promises",
            "fault",
            str(error),
            "two programs could both believe that they won",
            "use another store: SeaweedFS, MinIO and AWS keep them",
        )
    except ObjectsError as error:
        yield Finding(
            "bucket", "unreachable", str(error), "images and predictions live there", cure
        )


def judge(
    stored: Sequence[StoredRule] | LifecycleUnsupported, rules: Sequence[Rule]
) -> Iterator[Finding]:
    """Whether the rules are there, and whether anybody else's remove what is ours. Pure."""
    if isinstance(stored, LifecycleUnsupported):
        yield Finding(
            "bucket lifecycle",
            "note",
            f"the store has none ({stored.told})",
            "old photos and tasks stay for ever",
            "run it from a timer: jobwire lifecycle sweep",
        )
        return
    working = {each.id: each for each in stored if each.enabled}
    if missing := [rule.id for rule in rules if not _does(working.get(rule.id), rule)]:
        yield Finding(
            "bucket lifecycle",
            "note",
            f"missing, or not as it should be: {', '.join(missing)}",
            "old photos and tasks stay for ever, or go too soon",
            "jobwire lifecycle apply",
        )
    else:
        yield Finding("bucket lifecycle", "ok", f"{len(rules)} rules of ours")
    ours = {rule.id for rule in rules}
    for other in working.values():
        hit = [rule for rule in rules if other.id not in ours and _removes(other, rule)]
        if hit:
            prefixes = ", ".join(rule.prefix for rule in hit)
            yield Finding(
                "bucket strangers",
                "fault",
                f"the rule {other.id or '(without a name)'} removes {prefixes} after "
                f"{other.days} days",
                "objects go while they are still needed",
                "give that rule a prefix of its own, or use another bucket",
            )


def _does(stored: StoredRule | None, rule: Rule) -> bool:
    return stored is not None and (stored.prefix, stored.days) == (rule.prefix, rule.days)


def _removes(other: StoredRule, rule: Rule) -> bool:
    """Whether a stranger's rule takes what our rule would still keep."""
    if other.days is None or other.days >= rule.days:
        return False
    return rule.prefix.startswith(other.prefix) or other.prefix.startswith(rule.prefix)
