"""Every HTTP operation, described once and as data: types, access, problems, examples.

    operation    what an operation is: `Operation`, `Header`, `Proof`, `Either`
    problems     what a kind of error is, and the kinds that all systems have in common
    gateway      the gateway's own operations
    overview     all systems: rows, failures, search      fleet       workers, tasks, the load
    jobs         the operations of jobs                   job_queues  their queues
    openai       for clients of OpenAI's API              wire        a job's keys, of any wire

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
