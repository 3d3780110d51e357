"""What a test needs of the machine: a mark that skips it elsewhere, and says what is missing."""

from __future__ import annotations

import os
import socket
from typing import Final

import pytest


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_root: Final = pytest.mark.skipif(
    os.geteuid() != 0, reason="expected: only root can act for another user"
)
needs_ipv6: Final = pytest.mark.skipif(
    not _has_ipv6(), reason="expected: this machine has no IPv6 on loopback"
)
