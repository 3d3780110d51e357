"""Is this installation well? Each finding says what was found, why it matters, and the cure.

    finding  what a check says
    machine  Python, the data dir, open files
    program  the running program, over its own HTTP
    valkey   the server: version, persistence, eviction, memory, clock, who may come in
    bucket   does it answer, does the store keep its promises, do old objects leave it
    model    the models behind the six tasks: weights here, or a server that answers

A check is a function that never raises and changes nothing. Called by `jobwire doctor`; a part of
the product adds a module here and a line in `cli/doctor.py`.
"""

from jobwire.doctor.finding import Finding, Verdict

__all__ = ["Finding", "Verdict"]
