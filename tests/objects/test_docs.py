"""The example of docs/bucket.md counts correctly under concurrency."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

from jobwire.objects import Bucket, BucketConfig, Found
from tests.support import Fresh

PAGE = Path(__file__).parents[2] / "docs" / "bucket.md"


async def test_every_visit_counts_once(moto: BucketConfig, fresh: Fresh) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    count_visit = cast("Callable[[Bucket, str], Awaitable[int]]", names["count_visit"])
    bucket, key = Bucket(moto), fresh()
    counts = await asyncio.gather(*(count_visit(bucket, key) for _ in range(8)))
    assert sorted(counts) == list(range(1, 9))
    found = await bucket.get(key)
    assert isinstance(found, Found)
    assert json.loads(found.body)["count"] == 8
