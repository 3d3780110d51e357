"""The domain model: what a job is and how it may change, independent of any wire.

Every package may import it; it imports only the standard library and `cronsim`. It does no I/O and
knows no wire.

    states    the states of a job
    messages  JobRequest, LeasedJob, Report, outcomes, answers
    engine    the protocols: Engine, JobQueue, CronStore, LeaseRenewer, MaintenanceTask
    retry     backoff, and when a failed attempt is retried
    cron      when a cron entry is due
    errors    the tree of errors, and the two signals that a handler may raise
    ids       job ids, fencing tokens, random fractions
    clock     the wall clock of this process
"""
