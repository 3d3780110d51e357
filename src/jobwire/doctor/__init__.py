"""Checks of an installation. Each finding has a verdict, a reason and a fix.

    finding  the result of a check
    machine  Python, data dir, open files
    program  the running program, over HTTP
    valkey   version, persistence, eviction, memory, clock, access
    bucket   reachability, conditional writes, lifecycle rules
    model    the models of the six tasks: local weights, or a server

A check is a function that does not raise and leaves nothing changed. Called by `jobwire doctor`; a
system names its own checks in its declaration (`systems/system.py`).
"""

from jobwire.doctor.finding import Finding, Verdict

__all__ = ["Finding", "Verdict"]
