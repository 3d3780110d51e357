"""Built-in handlers: what a worker runs for a leased job.

Each package serves one kind of task. It imports `job/` and its own libraries, never a wire, the
worker or the gateway. Handlers see their job through the protocol in `context.py`.
"""
