"""The heart: what a job is and how it may live, said without any wire's word.

Everybody may import it; it imports only the standard library. It does no I/O, reads no clock but
the one in `clock.py`, and never knows on which wire a job travels.

    life      the states, and the only moves between them
    messages  what travels over the seam: Order, Held, Report, outcomes, answers
    engine    the seam itself: Engine, Queue, Keeper, Duty
    retry     when a failed attempt is tried again
    errors    the tree of errors, and the two signals a handler may raise
    clock     time, ids and randomness
"""
