"""Programs that do the same work, each in its own way: see `bench.jobs`.

Each is run as `PROGRAM URL SERVER_PID MODE N` and prints one JSON object. MODE `throughput`: submit
N no-op jobs with 100 callers, then work them off with 100 slots; µs of CPU a job on both sides.
MODE `latency`: N jobs at about 100 a second; ms from submit to the handler's first line.
"""
