"""What every test may use: a real server, a proxy that misbehaves, programs to kill, patience.

Fixtures are in `fixtures.py`; the names below are imported by tests.
"""

from tests.support.clauses import clause
from tests.support.program import Program
from tests.support.proxy import Proxy
from tests.support.servers import Plain
from tests.support.unique_names import Fresh
from tests.support.wait import wait_until, wait_until_sync

__all__ = ["Fresh", "Plain", "Program", "Proxy", "clause", "wait_until", "wait_until_sync"]
