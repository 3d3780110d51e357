"""Every HTTP operation, described once and as data: types, access, problems, examples.

    operation    what an operation is: `Operation`, `Header`, `Proof`, `Either`
    problems     what a kind of error is, and the kinds that all systems have in common
    gateway      the gateway's own operations
    overview     all systems: rows, failures, search
    fleet        workers, tasks, the load
    wire         the keys of a job on its server, in the form that all systems have
    jobs         the operations of jobs; bulk: of many at once; job_queues: of their queues
    openai       for clients of OpenAI's API
    queues       the operations of BullMQ's queues; queue_jobs, flows and schedulers: of what is in
                 them
    images       the operations of images
    predictions  the operations of predictions

The gateway serves them (`gateway/route.py`), the OpenAPI document is printed from them, clients
call by them. There is a module for each system; it has, in this order: limits, request types,
answer types, problems, operations.

Only msgspec and the standard library are imported, nothing of ours: a client loads it, and no wire
depends on HTTP. A limit that a wire has too is written here again; a test compares them.

- Request types forbid unknown members (`forbid_unknown_fields=True`); only the gateway reads them.
- Answer types do not; only clients read them. A member that is added later has a default.
- JSON of callers and handlers is `Any`; the gateway puts `msgspec.Raw` into it, byte for byte.
- A word that may get company (`status`, `state`) is `str` with an `enum` in the schema, so that an
  older client does not fail at a new one.
"""
