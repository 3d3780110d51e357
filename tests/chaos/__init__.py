"""Everything goes wrong at random, and the promises R1–R18 are judged from outside.

    plan.py      which fault comes when: a pure function of the seed
    fleet.py     the server, gateways and workers as processes, each on its own way to the server
    faults.py    one small function a fault
    load.py      those who submit, cancel, look and watch, and write down what they were told
    handlers.py  the work; each run leaves a line in a file outside the product
    inspector.py an eye on the raw server, during and after
    history.py   what all of them saw, as data
    checker.py   history → violations, one pure function a rule
    failover.py  a primary dies, a lagging replica takes over
    run.py       one run from start to verdict; `python -m tests.chaos` and the suite call it
    mutants.py   test of the checker: broken products, and the rules that must report them

The product's own word (logs, metrics) is never what it is judged by.
"""
