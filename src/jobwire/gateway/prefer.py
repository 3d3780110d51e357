"""The `Prefer` header (RFC 7240): how long a response may wait for the end of a job."""

import re
from typing import Final

from jobwire.gateway.request import HttpRequest

MAX_WAIT_S: Final = 60
_WAIT: Final = re.compile(rb'(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?=[,;]|$)', re.IGNORECASE)


def wait_s(request: HttpRequest) -> int:
    """`Prefer: wait=N`; 0 without it, at most `MAX_WAIT_S`."""
    prefer = request.headers.get(b"prefer")
    found = _WAIT.search(prefer) if prefer is not None else None
    return min(int(found[1]), MAX_WAIT_S) if found else 0
