"""What lies in the bucket of predictions, as data: so far, how long it stays (P-6)."""

from typing import Final

from jobwire.objects.lifecycle import Rule

LIFECYCLE: Final = (
    Rule("ExpireTasks", "tasks/", 2),
    Rule("ExpireInputImages", "images/input/", 14),
    Rule("ExpireOutputImages", "images/output/", 14),
)
