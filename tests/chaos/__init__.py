"""Random faults on a real fleet; the rules R1–R21 and F9 are checked from outside.

    plan.py      which fault comes when: a pure function of the seed
    fleet.py     the server, gateways and workers as processes, each behind its own proxy
    faults.py    one small function per fault
    load.py      HTTP clients that submit, cancel, read and watch jobs and record the responses
    handlers.py  the tasks; each run appends a line to a file outside the product
    inspector.py reads the raw keys during the run and after it
    history.py   the records of clients, handlers and inspector, as data
    checker.py   history → violations, one pure function per rule
    failover.py  a primary dies, a lagging replica takes over
    run.py       one run from start to result; `python -m tests.chaos` and the suite call it
    releases.py  an earlier commit and this one side by side
    sentinel.py  failovers by Sentinel under load: primaries killed and paused
    cluster.py   a Cluster under load: slots moved, replicas promoted, primaries killed; and shards
    other_systems.py  queues and images under load during these failovers
    mutants.py   test of the checker: broken products, and the rules that must report them

The product's own logs and metrics are never used as evidence.
"""
