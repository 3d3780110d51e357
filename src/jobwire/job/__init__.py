"""The domain model: what a job is and how it may change, independent of any wire.

Every package may import it; it imports only the standard library. It does no I/O and knows no wire.

    states        the states of a job
    messages      JobRequest, LeasedJob, Report, outcomes, answers
    engine        the protocols: Engine, JobQueue, CronStore, LeaseRenewer, MaintenanceTask
    retry         backoff, and when a failed attempt is retried
    errors        the tree of errors, and the signals that a handler may raise
    ids           job ids, fencing tokens, random fractions
    time_buckets  durations counted in buckets, for quantiles
    clock         the wall clock of this process
"""
