"""The work itself: what becomes of a job once a worker holds it.

Each folder is one kind of work and knows `job/` and its own library, nothing else: no wire, no
worker, no gateway. What a handler sees of its job is the small protocol in `context.py`.
"""
