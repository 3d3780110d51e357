"""Tools for all tests: a real server, a proxy with faults, programs to kill, `wait_until`.

Fixtures are in `fixtures.py`; the names below are imported by tests.
"""

from tests.support.clauses import clause
from tests.support.program import Program
from tests.support.proxy import Proxy
from tests.support.servers import Plain
from tests.support.unique_names import Fresh
from tests.support.wait import wait_until, wait_until_sync

__all__ = ["Fresh", "Plain", "Program", "Proxy", "clause", "wait_until", "wait_until_sync"]
